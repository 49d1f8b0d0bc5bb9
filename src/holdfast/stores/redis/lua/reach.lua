-- The line has arrived at this tag.
if tag > tonumber(redis.call('HGET', line, 'reached') or 0) then
  redis.call('HSET', line, 'reached', string.format('%d', tag))
  redis.call('PEXPIRE', line, kept_ms)
end
