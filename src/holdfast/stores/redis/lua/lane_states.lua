-- Lanes, how many have a place in each, and the first of them; nothing for those that are not there.
local lanes, found = lanes_of(index, names, out, now), {}
for i, lane in ipairs(wanted) do
  local row = redis.call('HGET', names, 'l\0' .. lane)
  found[i] = row and {
    row, lanes.count(lane, 'a'), lanes.count(lane, 'p'), lanes.first(lane, 'a', limit), lanes.first(lane, 'p', limit),
  }
end
return found
