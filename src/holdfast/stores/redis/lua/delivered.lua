-- These messages have reached the other shard.
return redis.call('XDEL', KEYS[1], unpack(ARGV))
