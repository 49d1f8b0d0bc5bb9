-- Keeps the last words of effects, at the fence of their run.
local run, aux = unpack(KEYS)
local epoch, nonce, beats = take(), take(), takes()

local row = redis.call('HMGET', run, 'e', 'n')
if row[1] ~= epoch or row[2] ~= nonce then
  return {'refused', redis.call('HGETALL', run)}
end
set(aux, beats)
return {'ok'}
