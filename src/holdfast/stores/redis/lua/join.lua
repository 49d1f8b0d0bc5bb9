-- Opens a lease.
local until_, members = unpack(KEYS)
local now, owner, ttl, serves = instant(take()), take(), take(), take()
redis.call('ZADD', until_, now + ttl, owner)
redis.call('HSET', members, owner, string.format('%d', now) .. '\0' .. serves)
return ''
