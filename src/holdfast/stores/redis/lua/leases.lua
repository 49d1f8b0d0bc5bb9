-- Who has a lease that has not expired, since when, until when and what for; and whose has expired.
local live = {}
local owners = redis.call('ZRANGEBYSCORE', expiries, '(' .. string.format('%d', now), '+inf', 'WITHSCORES')
for owner, expires in each_pair(owners) do
  live[#live + 1] = {owner, expires, redis.call('HGET', members, owner)}
end
return reply({live = live, expired = redis.call('ZRANGEBYSCORE', expiries, '-inf', string.format('%d', now))})
