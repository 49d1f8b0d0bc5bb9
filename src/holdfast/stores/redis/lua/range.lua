-- Members of the index between each pair of bounds, forwards or backwards, as they are at one instant.
local verb = ARGV[1] == '1' and 'ZREVRANGEBYLEX' or 'ZRANGEBYLEX'
local found = {}
for i = 3, #ARGV, 2 do
  found[#found + 1] = redis.call(verb, KEYS[1], ARGV[i], ARGV[i + 1], 'LIMIT', 0, ARGV[2])
end
return found
