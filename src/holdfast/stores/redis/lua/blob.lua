-- A large value of a run that is there.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return false
end
return redis.call('HGET', KEYS[2], ARGV[1])
