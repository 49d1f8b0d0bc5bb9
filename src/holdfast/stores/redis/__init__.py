"""The store on Redis or Valkey: shards that each live in one slot, and scripts that each touch one of them."""

from holdfast.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
