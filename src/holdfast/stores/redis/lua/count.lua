-- How many members of the index lie between each pair of bounds.
local counts = {}
for i = 1, #ARGV, 2 do
  counts[#counts + 1] = redis.call('ZLEXCOUNT', KEYS[1], ARGV[i], ARGV[i + 1])
end
return counts
