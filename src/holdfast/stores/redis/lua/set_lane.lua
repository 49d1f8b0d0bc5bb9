-- Sets a lane by hand, whether or not a run has used it.
local lanes = lanes_of(index, names, out, now)
lanes.set(lane, width, paused)
return reply({verdict = 'ok', left = lanes.left, told = lanes.told, woken = lanes.woken})
