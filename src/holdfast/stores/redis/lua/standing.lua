-- Where a run stands in its lane: whether it is active, how many are ahead of it, and who is the first of them.
local lanes = lanes_of(index, names, out, now)
local place = lanes.place_of(id)
if not place or (place.state ~= 'a' and place.state ~= 'p') then
  return false
end
if place.state == 'a' then
  return {1, 0, ''}
end
local prefix = 'g\0p\0' .. place.lane .. '\0'
local upto = '(' .. prefix .. place.rank .. '\0' .. hex(place.number)
local ahead = lanes.count(place.lane, 'a') + redis.call('ZLEXCOUNT', index, '[' .. prefix, upto)
local there = lanes.first(place.lane, 'a', 1)[1] or lanes.first(place.lane, 'p', 1)[1]
return {0, ahead, ahead > 0 and there or ''}
