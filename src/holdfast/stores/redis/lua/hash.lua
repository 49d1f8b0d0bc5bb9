-- All fields of a hash.
return redis.call('HGETALL', hash)
