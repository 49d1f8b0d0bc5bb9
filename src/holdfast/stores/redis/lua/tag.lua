-- Gives a run that has just been admitted its place in its line, unless it has one, or has begun.
local status, wake, known = unpack(redis.call('HMGET', run, 's', 'w', 'tg'))
if status == 'pending' and wake ~= '' and not known then
  redis.call('HSET', run, 'tg', member, 'sh', share)
  redis.call('ZADD', index, 0, member)
end
