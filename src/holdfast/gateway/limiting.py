"""What a gateway limits, and how a request is held against it.

    limit      counted where             when
    ─────────  ────────────────────────  ──────────────────────────────────────────────────────────────
    address    in this process           before anything else: it costs no key check and no store call
    api_key    in the store, exactly     when the API key is known; all of them are spent, or none
    tenant     in the store, exactly     the same: the namespace of the key
    start      in the store, exactly     the same, if the request starts a run: the namespace of the key

Rules
- What watches over the process (`/livez`, `/readyz`, `/metrics`) is not limited.
- An address of IPv6 counts by its /64, which is what one customer has.
- `X-Forwarded-For` is believed of the proxies that the settings name, from the right: what is left of the first
  address that is no such proxy, anyone may have written.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from starlette.types import Scope

from holdfast.config import RateLimitSettings
from holdfast.errors import LimitExceeded
from holdfast.events import LimitChecked
from holdfast.kernel import limits
from holdfast.kernel.limits import Cost, RateCounts, Verdicts
from holdfast.kernel.rates import Exceeded, Rate
from holdfast.kernel.units import milliseconds
from holdfast.runtime import RateLimits, Runtime

RawHeaders = tuple[tuple[bytes, bytes], ...]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
NAMES = {"api_key": "key"}  # in headers; the others are called as in the settings
HEADERS = (
    ("Retry-After", "In how many seconds as much may go."),
    ("RateLimit-Policy", "Each limit: `q` many, in `w` seconds."),
    ("RateLimit", "What is left of each: `r` many, and all again in `t` seconds."),
)
_US_PER_S = 1_000_000
_V6_PREFIX = 64


class RequestVerdict(NamedTuple):
    """Whether a request may pass, and what is said about the limits that it was held against."""

    refusal: LimitExceeded | None
    headers: RawHeaders


PASSES = RequestVerdict(None, ())


class RequestLimits:
    """The limits behind authentication."""

    def __init__(self, settings: RateLimitSettings, limits: RateLimits) -> None:
        self._rates = {name: rate for name, rate in settings.by_name.items() if name != "address"}
        self._limits = limits
        self._policies: dict[bool, bytes] = {
            starts: _policy(self._costs("", starts=starts)) for starts in (True, False)
        }
        limits.use(patience_ms=milliseconds(settings.patience))

    async def admit(self, caller_id: str, namespace: str, *, starts: bool) -> RequestVerdict:
        """Take one of each limit that a request of this caller is held against, or of none."""
        costs = self._costs(caller_id, starts=starts)
        if not costs:
            return PASSES
        verdicts = await self._limits.spend(namespace, costs)
        headers = ((b"ratelimit-policy", self._policies[starts]), (b"ratelimit", _left(costs, verdicts)))
        return RequestVerdict(_refusal(costs, verdicts), headers)

    async def look(self, caller_id: str, namespace: str) -> list[tuple[Cost, Verdicts]]:
        """What is left of each to this caller. Nothing is taken."""
        costs = [Cost(cost.limit, cost.name, cost.rate, 0) for cost in self._costs(caller_id, starts=True)]
        return [(cost, await self._limits.spend(namespace, [cost])) for cost in costs]

    def _costs(self, caller_id: str, *, starts: bool) -> list[Cost]:
        return [
            Cost(name, caller_id if name == "api_key" else "", rate)
            for name, rate in self._rates.items()
            if starts or name != "start"
        ]


class AddressGuard:
    """The limit before authentication. It protects this process, and counts what comes to it."""

    def __init__(self, rate: Rate, proxies: Sequence[str], runtime: Runtime) -> None:
        self._rate = rate
        self._proxies = tuple(ipaddress.ip_network(each) for each in proxies)
        self._counts = RateCounts()
        self._runtime = runtime

    def admit(self, scope: Scope) -> RequestVerdict:
        """Take one of the limit of the address that a request comes from."""
        name = self._name_of(scope)
        cost = Cost("address", name, self._rate)
        verdicts = self._counts.spend([cost], now_ms=self._runtime.store.now_ms())
        refusal = _refusal([cost], verdicts)
        self._runtime.emit(LimitChecked("address", "granted" if refusal is None else "refused"))
        if refusal is None:
            return PASSES
        return RequestVerdict(
            refusal, ((b"ratelimit-policy", _policy([cost])), (b"ratelimit", _left([cost], verdicts)))
        )

    def _name_of(self, scope: Scope) -> str:
        peer = _address(scope["client"][0]) if scope.get("client") else None
        if peer is None:
            return ""
        if self._proxies and self._is_proxy(peer):
            peer = self._forwarded(scope, peer)
        return f"{ipaddress.ip_network((peer, _V6_PREFIX), strict=False)}" if peer.version == 6 else f"{peer}"

    def _forwarded(self, scope: Scope, peer: Address) -> Address:
        lines = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
        for said in reversed(",".join(lines).split(",")):
            found = _address(said.strip())
            if found is None:
                return peer  # what says no address comes from no proxy of ours
            peer = found
            if not self._is_proxy(peer):
                return peer
        return peer

    def _is_proxy(self, address: Address) -> bool:
        return any(address in network for network in self._proxies if network.version == address.version)


def request_limits(settings: RateLimitSettings, limits: RateLimits) -> RequestLimits | None:
    """What holds requests against the limits behind authentication; None if there are none."""
    return RequestLimits(settings, limits) if settings.by_name.keys() - {"address"} else None


def address_guard(settings: RateLimitSettings, runtime: Runtime) -> AddressGuard | None:
    """What holds requests against the limit of their address; None if there is none."""
    return None if settings.address is None else AddressGuard(settings.address, settings.proxies, runtime)


@lru_cache(maxsize=1024)
def _address(text: str) -> Address | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def _refusal(costs: Sequence[Cost], verdicts: Verdicts) -> LimitExceeded | None:
    """The limit that asks for the most patience, if one stands in the way."""
    exceeded = [(each.retry_ms, cost) for cost, each in zip(costs, verdicts, strict=True) if isinstance(each, Exceeded)]
    if not exceeded:
        return None
    retry_ms, cost = max(exceeded, key=lambda each: each[0])
    rate = limits.text_of(cost.rate)
    return LimitExceeded(f"the limit {cost.limit!r} of {rate} is exceeded", retry_after=retry_ms / 1000)


def _policy(costs: Sequence[Cost]) -> bytes:
    return ", ".join(
        f'"{NAMES.get(cost.limit, cost.limit)}";q={cost.rate.at_once}'
        f";w={math.ceil(cost.rate.at_once * cost.rate.interval_us / _US_PER_S)}"
        for cost in costs
    ).encode()


def _left(costs: Sequence[Cost], verdicts: Verdicts) -> bytes:
    return ", ".join(
        f'"{NAMES.get(cost.limit, cost.limit)}";r={each.remaining};t={math.ceil(each.reset_ms / 1000)}'
        for cost, each in zip(costs, verdicts, strict=True)
    ).encode()
