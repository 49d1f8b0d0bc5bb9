-- Opens a lease.
redis.call('ZADD', expiries, now + ttl_ms, owner)
redis.call('HSET', members, owner, string.format('%d', now) .. '\0' .. serves)
return ''
