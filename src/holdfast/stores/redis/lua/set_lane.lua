-- Sets a lane by hand, whether or not a run has used it.
local lanes = lanes_of(index, names, out, now)
local row = lanes.lane_row(lane)
if (row and string.format('%d.%d', row[1], row[3]) or '') ~= before then
  return reply({verdict = 'changed'}) -- the audit would not be true
end
lanes.set(lane, width, paused)
keep(index, names, kept)
return reply({verdict = 'ok', left = lanes.left, told = lanes.told, woken = lanes.woken})
