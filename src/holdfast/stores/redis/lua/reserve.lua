-- Begins to deliver a signal to the run that holds a token: its id counts from now on, and it is left for that run.
local receiver, name = received_in(names, scope, former)
if receiver then
  return reply({verdict = 'received', receiver = receiver, name = name})
end
local held = redis.call('HGET', names, token)
local holder = held and unpack(cmsgpack.unpack(held))
if holder ~= id then
  return reply({verdict = 'refused'})
end
local reservation = redis.call('XADD', out, '*', 'm', message)
redis.call('HSET', names, scope, id .. '\0' .. reservation)
return reply({verdict = 'ok', reservation = reservation})
