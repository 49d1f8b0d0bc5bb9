-- Gives back the tag of a run that was not admitted, if no other of its share has got the next one.
if tonumber(redis.call('HGET', line, share) or 0) == tag + 1 then
  redis.call('HSET', line, share, string.format('%d', tag))
end
