-- Puts a message into the inbox of a run that has not ended and has not had it. Returns whether it did, and what the
-- run's wake-ups begin with if it may be claimed now. `to` has the run's id and keys. `message.scope` is the name under
-- which its id counts in this shard; `message.place` is the name under which it counts at all, if that is another one.
local function deliver(to, message, now)
  local finished, status, owner, wake, prefix = unpack(redis.call('HMGET', to.run, 'f', 's', 'o', 'w', 'wp'))
  if not status or finished ~= '' or redis.call('HEXISTS', to.box, message.id) == 1 then
    return false
  end
  redis.call('HSET', to.box, message.id, message.place or message.scope)
  redis.call('HSET', to.mail, message.id, hex(redis.call('HINCRBY', to.run, 'z', 1)) .. message.body)
  if message.scope ~= '' then
    redis.call('HSET', to.names, message.scope, to.id)
  end
  if redis.call('HINCRBY', to.run, 'u', 1) == 1 and owner ~= '' then
    redis.call('ZADD', to.index, 0, 'm\0' .. owner .. '\0' .. to.id)
  end
  if status ~= 'waiting' then
    return true
  end
  if wake ~= '' then
    redis.call('ZREM', to.index, prefix .. hex(wake) .. '\0' .. to.id)
  end
  redis.call('HSET', to.run, 'w', string.format('%d', now))
  redis.call('ZADD', to.index, 0, prefix .. hex(now) .. '\0' .. to.id)
  return true, prefix
end
