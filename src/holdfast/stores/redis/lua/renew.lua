-- Extends a lease that has not expired.
local expires = redis.call('ZSCORE', expiries, owner)
if not expires or tonumber(expires) <= now then
  return 0
end
redis.call('ZADD', expiries, now + ttl_ms, owner)
return 1
