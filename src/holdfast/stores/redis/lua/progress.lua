-- What an owner records while its run goes on: journal entries, large values, messages that were read.
local index, run, journal, box, mail, blobs = unpack(KEYS)
local id, epoch, nonce, position, length, change = take(), take(), take(), take(), take(), take()
local entries, read, large = take(), takes(), takes()

local row = redis.call('HMGET', run, 'e', 'n', 'l', 'c', 'u', 'o')
if row[4] == change then
  return {'again', redis.call('HGETALL', run)}
end
if row[1] ~= epoch or row[2] ~= nonce or row[3] ~= position then
  return {'refused', redis.call('HGETALL', run)}
end
redis.call('HSET', run, 'l', length, 'c', change)
if entries ~= '' then
  redis.call('RPUSH', journal, entries)
end
set(blobs, large)
if #read > 0 then
  for _, message in ipairs(read) do
    redis.call('HDEL', mail, message)
    redis.call('HSETNX', box, message, '')
  end
  if redis.call('HINCRBY', run, 'u', -#read) == 0 and row[6] ~= '' then
    redis.call('ZREM', index, 'm\0' .. row[6] .. '\0' .. id)
  end
end
return {'ok'}
