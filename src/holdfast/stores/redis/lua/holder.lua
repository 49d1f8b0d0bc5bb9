-- The run that holds a key, for a start that expects one; false if the start has to be offered whole.
local holder = redis.call('HGET', names, key)
if not holder or redis.call('EXISTS', run) == 1 then
  return false
end
return reply({verdict = 'held', holder = holder, row = row_of(run_beside(run, id, holder), redis.pcall)})
