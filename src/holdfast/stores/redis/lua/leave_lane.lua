-- Takes the place of a run that has ended or stepped aside.
local lanes = lanes_of(index, names, out, now)
lanes.leave(lane, id, epoch, home)
return reply({verdict = 'ok', left = lanes.left, told = lanes.told, woken = lanes.woken})
