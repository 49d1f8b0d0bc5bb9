-- Reserves a place for a run that is about to be admitted in another shard, if there is room.
local lanes = lanes_of(index, names, out, now)
local until_ms = now + reserve_ms
local place = lanes.place_of(id) -- its start is offered again
if place and place.state ~= 'r' then
  return reply({verdict = 'ok', until_ms = string.format('%d', until_ms)})
end
local no_room, there = nil, nil
if not place then
  no_room, there = lanes.no_room(lane, parked_max, if_free, width)
end
if no_room then
  return reply({verdict = no_room, first = there})
end
-- The width counts from when the run is there: its start may be refused for another reason.
lanes.reserve(lane, {
  id = id, epoch = '0', width = '', rank = rank, wake = wake, home = false, until_ms = until_ms,
})
return reply({verdict = 'ok', until_ms = string.format('%d', until_ms)})
