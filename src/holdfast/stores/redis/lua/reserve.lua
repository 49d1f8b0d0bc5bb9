-- Begins to deliver a signal to the run that holds a token: its id counts from now on, and it is left for that run.
local names, out = unpack(KEYS)
local token, id, scope, former, message = take(), take(), take(), take(), take()

local receiver, name = received_in(names, scope, former)
if receiver then
  return {'received', receiver, name}
end
local held = redis.call('HGET', names, token)
if not held or cmsgpack.unpack(held)[1] ~= id then
  return {'refused'}
end
local left = redis.call('XADD', out, '*', 'm', message)
redis.call('HSET', names, scope, id .. '\0' .. left)
return {'ok', left}
