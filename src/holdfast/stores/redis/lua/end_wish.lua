-- Grants or refuses the wish of a new run for a token: once.
if redis.call('HEXISTS', aux, wish) == 0 then
  return 0
end
if opened ~= '' then
  redis.call('HSET', aux, hook, opened)
end
redis.call('HDEL', aux, wish)
return 1
