-- Messages for other shards that have been waiting for a while, behind one of them.
return redis.call('XRANGE', out, after, string.format('%d', now - age_ms), 'COUNT', limit)
