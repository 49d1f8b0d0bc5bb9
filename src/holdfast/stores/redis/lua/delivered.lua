-- These messages have reached the other shard.
return redis.call('XDEL', out, unpack(ids))
