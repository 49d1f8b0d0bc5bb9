"""The paces at which tests let a Holdfast and its store work."""

from __future__ import annotations

from holdfast.adapters.machine import SystemClock, SystemIds
from holdfast.engine.pace import Pace
from holdfast.stores.redis import RedisStore
from holdfast.stores.redis.net import urls
from holdfast.stores.redis.net.pubsub import PubSub
from holdfast.stores.redis.pace import RedisPace
from holdfast.stores.sqlite.pace import SqlitePace

# Without safety polls: a wake-up that is not pushed is then no delay of seconds, but a test that hangs.
PUSHED_ONLY = Pace(
    wake_poll_seconds=3600.0,
    mail_poll_seconds=3600.0,
    waiters_poll_seconds=3600.0,
    tasks_poll_seconds=3600.0,
    rules_poll_seconds=3600.0,
)
SQLITE_PUSHED_ONLY = SqlitePace(safety_seconds=3600.0)


def redis_store(url: str, pace: RedisPace) -> RedisStore:
    """The store that a Holdfast would make of this URL, at another pace."""
    parsed, clock = urls.parse(url), SystemClock()
    return RedisStore(parsed, clock=clock, bus=PubSub(parsed, clock=clock, ids=SystemIds()), pace=pace)
