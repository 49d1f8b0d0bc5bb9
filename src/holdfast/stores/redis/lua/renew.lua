-- Extends a lease that has not expired.
local now, owner, ttl = instant(take()), take(), take()
local expires = redis.call('ZSCORE', KEYS[1], owner)
if not expires or tonumber(expires) <= now then
  return 0
end
redis.call('ZADD', KEYS[1], now + ttl, owner)
return 1
