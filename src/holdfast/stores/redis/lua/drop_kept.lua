-- Forgets what is kept at these places.
for _, place in ipairs(places) do
  redis.call('ZREM', index, prefix .. place)
  redis.call('HDEL', names, prefix .. place)
end
return ''
