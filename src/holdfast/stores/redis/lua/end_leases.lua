-- Ends leases; with `only_expired`, those that had run out by `expired_until_ms`. Returns the owners that have none now.
local by = math.min(now, expired_until_ms)
local without = {}
for _, owner in ipairs(owners) do
  local expires = redis.call('ZSCORE', expiries, owner)
  if not expires or not only_expired or tonumber(expires) <= by then
    redis.call('ZREM', expiries, owner)
    redis.call('HDEL', members, owner)
    without[#without + 1] = owner
  end
end
return without
