from __future__ import annotations

import pytest

from holdfast.engine.api.apikeys import SHOWN_AFTERWARDS_MS, ApiKeys
from holdfast.engine.pace import Pace
from holdfast.errors import NotAuthenticated, UnknownApiKey, UsageError
from holdfast.stores.memory import MemoryStore
from tests.builders import DAY_MS, FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


class CountedStore(MemoryStore):
    reads = 0

    async def document(self, namespace, kind, id):
        self.reads += 1
        return await super().document(namespace, kind, id)


@pytest.fixture
async def store(clock):
    store = CountedStore(clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def keys(store) -> ApiKeys:
    return ApiKeys(store, pace=Pace())


async def test_a_key_is_known_by_its_token(keys):
    token, key = await keys.create("ci", namespace="shop", scope="write")
    assert await keys.authenticate(token) == key
    assert await keys.known(key.id) == key
    assert (key.name, key.namespace, key.scope, key.tail) == ("ci", "shop", "write", token[-4:])


async def test_no_two_tokens_are_alike(keys):
    tokens = {(await keys.create("ci", namespace="n", scope="read"))[0] for _ in range(50)}
    assert len({token.split("_", 2)[1] for token in tokens}) == len({token.split("_", 2)[2] for token in tokens}) == 50


async def test_the_store_never_sees_a_secret(keys, store):
    token, _ = await keys.create("ci", namespace="n", scope="read")
    [document] = await store.documents("", "api_key")
    assert token.split("_", 2)[2].encode() not in document.body


async def test_who_is_refused_is_not_told_whether_the_id_exists(keys):
    token, key = await keys.create("ci", namespace="n", scope="read")
    refusals = set()
    for wrong in (f"hf_{key.id}_{'x' * 43}", f"hf_{'0' * 16}_{token.split('_', 2)[2]}"):
        with pytest.raises(NotAuthenticated) as refused:
            await keys.authenticate(wrong)
        refusals.add(str(refused.value))
    assert len(refusals) == 1


async def test_an_unknown_id_and_a_wrong_secret_cost_the_same_reads(keys, store):
    _, key = await keys.create("ci", namespace="n", scope="read")
    costs = []
    for wrong in (f"hf_{key.id}_{'x' * 43}", f"hf_{'0' * 16}_{'x' * 43}"):
        before = store.reads
        for _ in range(3):
            with pytest.raises(NotAuthenticated):
                await keys.authenticate(wrong)
        costs.append(store.reads - before)
    assert costs == [1, 1]


async def test_what_is_no_token_is_refused_without_a_look_and_without_showing_it(keys, store):
    with pytest.raises(NotAuthenticated) as refused:
        await keys.authenticate("hf_almost-a-secret")
    assert "almost-a-secret" not in repr(refused.value)
    assert store.reads == 0


async def test_a_key_expires(keys, clock):
    token, key = await keys.create("ci", namespace="n", scope="read", expires_in="1d")
    clock.advance(DAY_MS - 1)
    assert await keys.authenticate(token) == key
    clock.advance(1)
    with pytest.raises(NotAuthenticated, match="expired"):
        await keys.authenticate(token)
    with pytest.raises(NotAuthenticated, match="expired"):
        await keys.known(key.id)


async def test_a_revoked_key_is_worthless_at_once_where_it_was_revoked(keys, clock):
    token, key = await keys.create("ci", namespace="n", scope="read")
    assert await keys.authenticate(token)
    clock.advance(5)
    revoked = await keys.revoke("n", key.id)
    assert revoked.revoked_at_ms == key.created_at_ms + 5
    with pytest.raises(NotAuthenticated, match="revoked"):
        await keys.authenticate(token)


async def test_another_process_notices_a_revocation_within_two_seconds(keys, store, clock):
    elsewhere = ApiKeys(store, pace=Pace())
    token, key = await keys.create("ci", namespace="n", scope="read")
    assert await elsewhere.authenticate(token)
    await keys.revoke("n", key.id)
    with pytest.raises(NotAuthenticated, match="revoked"):
        await elsewhere.known(key.id)
    clock.advance(Pace().api_key_ms - 1)
    assert await elsewhere.authenticate(token)
    clock.advance(1)
    with pytest.raises(NotAuthenticated, match="revoked"):
        await elsewhere.authenticate(token)


async def test_a_notice_makes_a_process_look_again_at_once(keys, store):
    elsewhere = ApiKeys(store, pace=Pace())
    token, key = await keys.create("ci", namespace="n", scope="read")
    assert await elsewhere.authenticate(token)
    await keys.revoke("n", key.id)
    elsewhere.forget()
    with pytest.raises(NotAuthenticated, match="revoked"):
        await elsewhere.authenticate(token)


async def test_what_was_read_before_a_notice_is_not_remembered_after_it(clock):
    """The key is revoked, and that is told, while an older answer of the store is still on its way."""

    class Slow(MemoryStore):
        slow = False

        async def document(self, namespace, kind, id):
            answer = await super().document(namespace, kind, id)
            if self.slow:
                self.slow = False
                await keys.revoke("n", key.id)
                elsewhere.forget()
            return answer

    store = Slow(clock=clock)
    keys, elsewhere = ApiKeys(store, pace=Pace()), ApiKeys(store, pace=Pace())
    token, key = await keys.create("ci", namespace="n", scope="read")
    store.slow = True
    assert await elsewhere.authenticate(token)  # it began before the revocation
    with pytest.raises(NotAuthenticated, match="revoked"):
        await elsewhere.authenticate(token)


async def test_a_key_in_use_is_read_every_two_seconds_at_most(keys, store, clock):
    token, _ = await keys.create("ci", namespace="n", scope="read")
    for _ in range(4 * Pace().api_key_ms // 100):
        await keys.authenticate(token)
        clock.advance(100)
    assert store.reads == 4


async def test_what_is_remembered_is_bounded(store):
    keys = ApiKeys(store, pace=Pace(api_keys_max=3))
    for number in range(10):
        with pytest.raises(NotAuthenticated):
            await keys.authenticate(f"hf_{number:016x}_{'x' * 43}")
    assert len(keys._remembered) == 3


async def test_revoking_twice_is_revoking_once(keys, clock):
    _, key = await keys.create("ci", namespace="n", scope="read")
    first = await keys.revoke("n", key.id)
    clock.advance(10)
    assert await keys.revoke("n", key.id) == first


async def test_a_key_belongs_to_its_namespace_alone(keys):
    token, key = await keys.create("ci", namespace="ours", scope="admin")
    assert await keys.listed("ours") == [key]
    assert await keys.listed("theirs") == []
    for namespace in ("theirs", ""):
        with pytest.raises(UnknownApiKey):
            await keys.revoke(namespace, key.id)
    assert await keys.authenticate(token) == key


async def test_keys_are_listed_in_the_order_in_which_they_were_made_however_many(store, clock):
    keys = ApiKeys(store, pace=Pace(api_keys_page=3))
    made = []
    for number in range(10):
        made.append((await keys.create(f"key {number}", namespace="n", scope="read"))[1])
        clock.advance(1)
    assert await keys.listed("n") == made


async def test_a_key_that_no_longer_works_is_shown_for_a_while(keys, clock):
    _, revoked = await keys.create("revoked", namespace="n", scope="read")
    _, expiring = await keys.create("expiring", namespace="n", scope="read", expires_in="1d")
    await keys.create("good", namespace="n", scope="read")
    await keys.revoke("n", revoked.id)
    clock.advance(SHOWN_AFTERWARDS_MS - 1)
    assert {key.name for key in await keys.listed("n")} == {"revoked", "expiring", "good"}
    clock.advance(1)
    assert {key.name for key in await keys.listed("n")} == {"expiring", "good"}
    clock.advance(DAY_MS)
    assert {key.name for key in await keys.listed("n")} == {"good"}
    with pytest.raises(NotAuthenticated, match="not known"):
        await keys.known(expiring.id)


@pytest.mark.parametrize(
    "wish",
    [
        {"name": ""},
        {"name": "x" * 101},
        {"namespace": ""},
        {"scope": "root"},
        {"expires_in": "soon"},
    ],
    ids=lambda wish: next(iter(wish)),
)
async def test_a_wish_that_cannot_be_fulfilled_is_refused(keys, wish):
    with pytest.raises(UsageError):
        await keys.create(**{"name": "ci", "namespace": "n", "scope": "read"} | wish)
