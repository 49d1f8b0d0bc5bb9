-- Writes down at a run, at its fence, that it has opened a hook with a token.
local epoch_now, nonce_now = unpack(redis.call('HMGET', run, 'e', 'n'))
if epoch_now ~= epoch or nonce_now ~= nonce then
  return 0
end
-- First what Redis refuses when its memory is full: then nothing has been written.
redis.call('HSET', aux, hook, opened)
for field, known in each_pair(redis.call('HGETALL', aux)) do
  if string.sub(field, 1, 2) == 'h\0' and field ~= hook then
    local _, known_token = unpack(cmsgpack.unpack(known))
    if known_token == token then
      redis.call('HDEL', aux, field) -- under the name that it had before
    end
  end
end
return 1
