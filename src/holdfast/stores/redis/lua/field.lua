-- One field of a hash.
return redis.call('HGET', hash, field)
