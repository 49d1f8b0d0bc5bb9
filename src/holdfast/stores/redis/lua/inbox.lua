-- Puts a message into the inbox of a run that has not ended and has not had it. Answers whether it did, and what the
-- run's wake-ups begin with if it may be claimed now. `scope` is the name under which its id counts in this shard;
-- `place` is the name under which it counts at all, which may be in another one.
local function deliver(index, names, run, box, mail, id, message, scope, place, body, now)
  local row = redis.call('HMGET', run, 'f', 's', 'o', 'w', 'wp')
  if not row[2] or row[1] ~= '' or redis.call('HEXISTS', box, message) == 1 then
    return false
  end
  redis.call('HSET', box, message, place)
  redis.call('HSET', mail, message, hex(redis.call('HINCRBY', run, 'z', 1)) .. body)
  if scope ~= '' then
    redis.call('HSET', names, scope, id)
  end
  if redis.call('HINCRBY', run, 'u', 1) == 1 and row[3] ~= '' then
    redis.call('ZADD', index, 0, 'm\0' .. row[3] .. '\0' .. id)
  end
  if row[2] ~= 'waiting' then
    return true
  end
  if row[4] ~= '' then
    redis.call('ZREM', index, row[5] .. hex(row[4]) .. '\0' .. id)
  end
  redis.call('HSET', run, 'w', string.format('%d', now))
  redis.call('ZADD', index, 0, row[5] .. hex(now) .. '\0' .. id)
  return true, row[5]
end
