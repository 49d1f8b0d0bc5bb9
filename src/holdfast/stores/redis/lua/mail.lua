-- The unread messages of a run, if this owner holds it.
if redis.call('HGET', KEYS[1], 'o') ~= ARGV[1] then
  return {}
end
return redis.call('HGETALL', KEYS[2])
