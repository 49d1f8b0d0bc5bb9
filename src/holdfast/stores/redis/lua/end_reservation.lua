-- Ends the delivery of a signal to a token: it has been received, or there is no run to receive it.
if redis.call('HGET', names, scope) == id .. '\0' .. reservation then
  if received then
    redis.call('HSET', names, scope, id)
  else
    redis.call('HDEL', names, scope)
  end
end
return redis.call('XDEL', out, reservation)
