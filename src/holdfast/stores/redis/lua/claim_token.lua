-- Gives a token to a run, if nobody has it, or the run itself, or the one that it may be taken from.
local names = KEYS[1]
local token, id, taken_from, held = take(), take(), take(), take()

local before = redis.call('HGET', names, token)
if before then
  local holder = cmsgpack.unpack(before)[1]
  if holder ~= id and holder ~= taken_from then
    return holder
  end
end
redis.call('HSET', names, token, held)
return ''
