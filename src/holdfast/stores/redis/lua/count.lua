-- How many members of the index lie between each pair of bounds.
local counts = {}
for i, stretch in ipairs(stretches) do
  counts[i] = redis.call('ZLEXCOUNT', index, stretch.low, stretch.high)
end
return counts
