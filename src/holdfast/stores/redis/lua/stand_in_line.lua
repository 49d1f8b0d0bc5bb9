-- The tag of the next run of a share, as `fairness.enter` says.
local reached = tonumber(redis.call('HGET', line, 'reached') or 0)
local tag = math.max(reached, tonumber(redis.call('HGET', line, share) or 0))
redis.call('HSET', line, share, string.format('%d', tag + 1))
if has_begun and tag > reached then
  redis.call('HSET', line, 'reached', string.format('%d', tag))
end
redis.call('PEXPIRE', line, kept_ms)
return tag
