-- Messages for other shards that have been waiting for a while, behind one of them.
local before = instant(take()) - take()
return redis.call('XRANGE', KEYS[1], take(), string.format('%d', before), 'COUNT', take())
