-- Forgets that a run has received a message, since that run is gone.
local receiver = redis.call('HGET', names, scope)
if receiver and string.sub(receiver .. '\0', 1, #id + 1) == id .. '\0' then
  redis.call('HDEL', names, scope)
end
return ''
