-- All that is needed to continue a run, as it is at one instant.
local run, journal, mail, aux = unpack(KEYS)
return {
  redis.call('HGETALL', run),
  redis.call('LRANGE', journal, 0, -1),
  redis.call('HGETALL', mail),
  redis.call('HGETALL', aux),
}
