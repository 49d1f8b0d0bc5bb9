from __future__ import annotations

import asyncio

import pytest

from examples import approvals
from examples.approvals import Books, Decision, expense, expenses, in_words, open_expenses
from holdfast import Holdfast, RunFailed
from holdfast.errors import PayloadRefused


@pytest.fixture
def books(monkeypatch) -> Books:
    books = Books()
    monkeypatch.setattr(approvals, "books", books)
    return books


@pytest.fixture
def url(tmp_path) -> str:
    return f"sqlite:///{tmp_path}/expenses.db"


@pytest.fixture
async def hf(url):
    async with Holdfast(url, packs=[expenses], strict=True) as hf:
        yield hf


async def until(condition) -> None:
    async with asyncio.timeout(30):
        while not await condition():
            await asyncio.sleep(0.01)


async def opened(hf, count: int):
    async def all_open() -> bool:
        return len(await open_expenses(hf)) == count

    await until(all_open)
    return await open_expenses(hf)


async def test_an_approved_expense_is_paid_once_however_often_the_button_is_pressed(hf, books):
    run, _ = await hf.start(expense("e-1", "ada", 4_200))
    for _ in range(3):
        await run.signal("decision", Decision("eve", approved=True), dedupe="form-7")
    assert await run.result() == "transfer e-1"
    assert books.paid == {"pay:e-1": 4_200}
    run = await run.refresh()
    assert [marker.name for marker in run.markers] == ["approved", "paid"]
    assert run.attributes == {"employee": "ada", "cents": 4_200, "stage": "decided", "by": "eve"}


async def test_a_decision_that_does_not_fit_is_refused_at_the_sender_and_changes_nothing(hf, books):
    run, _ = await hf.start(expense("e-1", "ada", 4_200))
    await opened(hf, 1)
    with pytest.raises(PayloadRefused, match="approved"):
        await run.signal("decision", {"by": "eve", "approved": "perhaps"})
    await run.signal("decision", {"by": "eve", "approved": False, "note": "too much"})
    assert await run.result() == "rejected by eve: too much"
    assert (books.reserved, books.paid) == ({}, {})


async def test_the_list_of_what_is_open_is_a_search(hf, books):
    for number, cents in (("e-1", 100), ("e-2", 900), ("e-3", 500)):
        await hf.start(expense(number, "ada", cents))
        await opened(hf, int(number[2:]))
    assert [run.key for run in await open_expenses(hf, at_least=500)] == ["expense:e-2", "expense:e-3"]
    [run, _] = await open_expenses(hf, at_least=500)
    await run.signal("decision", Decision("eve", approved=True))
    await run.result()
    assert [run.key for run in await open_expenses(hf)] == ["expense:e-1", "expense:e-3"]


async def test_a_withdrawn_expense_gives_its_budget_back_and_the_receipt_says_so(hf, books):
    run, _ = await hf.start(expense("e-1", "ada", 4_200))
    await opened(hf, 1)
    assert books.reserved == {"e-1": 4_200}
    receipt = await run.cancel("withdrawn")
    assert in_words(receipt) == "compensated (reserve:e-1 undone)"
    assert (books.reserved, books.paid) == ({}, {})


async def test_a_withdrawal_that_comes_too_late_is_told_so(hf, books):
    run, _ = await hf.start(expense("e-1", "ada", 4_200))
    await run.signal("decision", Decision("eve", approved=True))
    await run.result()
    assert (await run.cancel()).outcome == "completed_first"
    assert books.paid == {"pay:e-1": 4_200}


async def test_a_withdrawal_while_the_bank_is_told_comes_too_late(hf, monkeypatch):
    class SlowBank(Books):
        told = asyncio.Event()
        answers = asyncio.Event()

        async def transfer(self, key: str, cents: int) -> None:
            self.told.set()
            await self.answers.wait()
            await super().transfer(key, cents)

    books = SlowBank()
    monkeypatch.setattr(approvals, "books", books)
    run, _ = await hf.start(expense("e-1", "ada", 4_200))
    await run.signal("decision", Decision("eve", approved=True))
    async with asyncio.timeout(30):
        await books.told.wait()
        withdrawal = asyncio.create_task(run.cancel("withdrawn"))
        while not (await run.refresh())._row.unread:  # the request has come
            await asyncio.sleep(0.01)
        books.answers.set()
        assert (await withdrawal).outcome == "completed_first"
    assert await run.result() == "transfer e-1"
    assert (books.reserved, books.paid) == ({"e-1": 4_200}, {"pay:e-1": 4_200})


async def test_an_expense_beyond_the_budget_fails_before_anybody_is_asked(hf, books):
    books.budget = 100
    run, _ = await hf.start(expense("e-1", "ada", 4_200))
    with pytest.raises(RunFailed, match="budget"):
        await run.result()
    assert await open_expenses(hf) == []


async def test_a_decision_that_is_late_is_waited_for_with_reminders(hf, books):
    run, _ = await hf.start(expense("e-1", "ada", 100, patience=0.03))

    async def two_reminders() -> bool:
        return len(books.reminders) >= 2

    await until(two_reminders)
    await run.signal("decision", Decision("eve", approved=True))
    assert await run.result() == "transfer e-1"
    assert books.reminders[:2] == ["e-1, reminder 1", "e-1, reminder 2"]


async def test_the_story_is_told(url, books, capsys):
    await approvals.story(url)
    told = capsys.readouterr().out
    assert "open, from 500 on: ['expense:e-1', 'expense:e-3']" in told
    assert "refused: the payload for hook 'decision' does not fit: $.approved: expected boolean" in told
    assert "e-2: rejected by eve: no receipt" in told
    assert "e-3: compensated (reserve:e-3 undone)" in told
    assert "too late: completed_first" in told
    assert "reserved: {'e-1': 4200}, paid: {'pay:e-1': 4200}" in told
