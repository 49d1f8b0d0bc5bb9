-- How this store is laid out, and into how many shards: the first who asks decides.
redis.call('SET', KEYS[1], ARGV[1], 'NX')
return redis.call('GET', KEYS[1])
