-- Gives a token to a run, if no run has it, or the run itself, or the one that it may be taken from.
-- Returns the run that has it instead, or nothing.
local before = redis.call('HGET', names, token)
if before then
  local holder = unpack(cmsgpack.unpack(before))
  if holder ~= id and holder ~= taken_from then
    return holder
  end
end
redis.call('HSET', names, token, held)
return ''
