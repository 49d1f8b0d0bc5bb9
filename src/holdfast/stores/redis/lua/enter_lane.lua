-- Gives a run of another shard a place in its lane; the run is told when it is its turn.
local lanes = lanes_of(index, names, out, now)
lanes.enter(lane, {id = id, epoch = epoch, width = width, rank = rank, wake = wake, home = false})
return reply({verdict = 'ok', left = lanes.left, told = lanes.told, woken = lanes.woken})
