-- Lets a parked run be claimed from an instant on, unless it has gone on since it was parked. Returns what its wake-ups
-- begin with, if it may be claimed by this.
local LANED = {'e', unpack(INDEXED)}

local function wake_parked(index, run, id, row, epoch, wake)
  if row.s ~= 'pending' or row.w ~= '' or row.o ~= '' or row.e ~= epoch then
    return nil
  end
  local before = members_of(id, row)
  row.w = wake
  redis.call('HSET', run, 'w', wake)
  reindex(index, before, members_of(id, row))
  return row.wp
end

-- Gives a run, whose row says that it is parked, its place in its lane; if that is in another shard, by a message. If it
-- is its turn, `take_turn` becomes of its row.
local function enter_lane(lanes, entering, to, take_turn)
  redis.call('ZADD', to.index, 0, entering.member)
  redis.call('HSET', to.run, 'la', entering.name, 'as', '')
  if entering.home ~= '1' then
    lanes.left[#lanes.left + 1] = leave_packed(to.out, entering.message)
    return
  end
  local given = {
    id = to.id, epoch = entering.epoch, width = entering.width, rank = entering.rank, wake = entering.wake, home = true,
  }
  if lanes.enter(entering.lane, given) then
    local before = members_of(to.id, fields_of(to.run, INDEXED))
    redis.call('HSET', to.run, unpack(take_turn))
    reindex(to.index, before, members_of(to.id, fields_of(to.run, INDEXED)))
  end
end
