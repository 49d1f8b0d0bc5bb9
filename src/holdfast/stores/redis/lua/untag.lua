-- Takes a run out of its line that has begun, or may not be claimed.
local status, wake = unpack(redis.call('HMGET', run, 's', 'w'))
if status ~= 'pending' or wake == '' then
  redis.call('HDEL', run, 'tg', 'sh')
  redis.call('ZREM', index, member)
end
