-- Writes down at a run, at its fence, that it has opened a hook with a token.
local run, aux = unpack(KEYS)
local epoch, nonce, hook, token, opened = take(), take(), take(), take(), take()

local row = redis.call('HMGET', run, 'e', 'n')
if row[1] ~= epoch or row[2] ~= nonce then
  return 0
end
-- First what Redis refuses when its memory is full: then nothing has been written.
redis.call('HSET', aux, hook, opened)
local known = redis.call('HGETALL', aux)
for i = 1, #known, 2 do
  local is_hook = string.sub(known[i], 1, 2) == 'h\0'
  if is_hook and known[i] ~= hook and cmsgpack.unpack(known[i + 1])[2] == token then
    redis.call('HDEL', aux, known[i]) -- under the name that it had before
  end
end
return 1
