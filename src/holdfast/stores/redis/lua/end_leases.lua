-- Ends leases; with `expired`, only those that have run out. Answers the owners that have none now.
local until_, members = unpack(KEYS)
local now, expired, owners = instant(take()), take() == '1', takes()

local without = {}
for _, owner in ipairs(owners) do
  local expires = redis.call('ZSCORE', until_, owner)
  if not expires or not expired or tonumber(expires) <= now then
    redis.call('ZREM', until_, owner)
    redis.call('HDEL', members, owner)
    without[#without + 1] = owner
  end
end
return without
