-- All that is needed to continue a run, as it is at one instant.
return reply({
  row = row_of(run),
  journal = redis.call('LRANGE', journal, 0, -1),
  mail = redis.call('HGETALL', mail),
  aux = redis.call('HGETALL', aux),
})
