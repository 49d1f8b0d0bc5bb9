-- Ends the delivery of a signal to a token: it has been received, or nobody is there to receive it.
local names, out = unpack(KEYS)
local scope, id, left, received = take(), take(), take(), take() == '1'

if redis.call('HGET', names, scope) == id .. '\0' .. left then
  if received then
    redis.call('HSET', names, scope, id)
  else
    redis.call('HDEL', names, scope)
  end
end
return redis.call('XDEL', out, left)
