-- What is kept behind a place, in order: each place with what is there.
local found = {}
local from = after == '' and '[' .. prefix or '(' .. prefix .. after
for i, place in ipairs(redis.call('ZRANGEBYLEX', index, from, '(' .. prefix .. '\255', 'LIMIT', 0, limit)) do
  found[i] = {string.sub(place, #prefix + 1), redis.call('HGET', names, place)}
end
return found
