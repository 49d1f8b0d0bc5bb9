-- Who has a lease that has not expired, since when, until when and what for; and whose has expired.
local until_, members = unpack(KEYS)
local now = instant(take())

local live = {}
local owners = redis.call('ZRANGEBYSCORE', until_, '(' .. string.format('%d', now), '+inf', 'WITHSCORES')
for i = 1, #owners, 2 do
  live[#live + 1] = {owners[i], owners[i + 1], redis.call('HGET', members, owners[i])}
end
return {live, redis.call('ZRANGEBYSCORE', until_, '-inf', string.format('%d', now))}
