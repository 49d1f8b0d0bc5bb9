-- What an owner records while its run goes on: journal entries, large values, messages that were read.
local epoch_now, nonce_now, length_now, last_change, owner = unpack(redis.call('HMGET', run, 'e', 'n', 'l', 'c', 'o'))
if last_change == change then
  return reply({verdict = 'again', row = row_of(run)})
end
if epoch_now ~= epoch or nonce_now ~= nonce or length_now ~= position then
  return reply({verdict = 'refused', row = row_of(run)})
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
  if redis.call('HINCRBY', run, 'u', -#read) == 0 and owner ~= '' then
    redis.call('ZREM', index, 'm\0' .. owner .. '\0' .. id)
  end
end
return reply({verdict = 'ok'})
