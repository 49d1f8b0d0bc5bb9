-- One field of a hash.
return redis.call('HGET', KEYS[1], ARGV[1])
