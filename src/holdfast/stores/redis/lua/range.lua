-- Members of the index in each stretch, forwards or backwards, as they are at one instant.
local verb = backwards and 'ZREVRANGEBYLEX' or 'ZRANGEBYLEX'
local found = {}
for i, stretch in ipairs(stretches) do
  found[i] = redis.call(verb, index, stretch.from, stretch.to, 'LIMIT', 0, limit)
end
return found
