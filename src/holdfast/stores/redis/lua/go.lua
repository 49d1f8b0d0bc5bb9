-- It is the turn of a run in its lane, which is in another shard.
local row = fields_of(run, LANED)
return row and wake_parked(index, run, id, row, epoch, wake) or ''
