-- The lanes of this shard: which runs have a place, which of them are active, and who is next. The rules are those of
-- `holdfast.kernel.lanes`; a lane is called by its namespace and its name.
--
--   names   l\0 lane   width, declared width, whether it is paused, the next number, since when it is empty or 0
--           p\0 run    its place: epoch, state, lane, rank, number, wake-up, whether the run is in this shard, and until
--                      when it is reserved
--   index   g\0 state \0 lane \0 rank \0 number \0 run      l\0 lane      b\0 since \0 lane: it is empty
--           h\0 until \0 run: it is reserved
--
-- A place is (a)ctive, (p)arked, or (r)eserved for a run that is about to be admitted in another shard. Of a run in
-- another shard that has left, what remains is (l)eft: with the epoch at which it did, so that a message of before, if
-- it comes late or twice, gives it no place again. `home` is for runs in the shard of their lane, which need no messages.
local function lanes_of(index, names, out, now)
  local left, told, woken = {}, {}, {}
  local tag = string.sub(index, 1, -6) -- all keys of the shard begin with it

  local function lane_row(lane)
    local packed = redis.call('HGET', names, 'l\0' .. lane)
    return packed and cmsgpack.unpack(packed)
  end

  local function new_lane(width)
    local first = tonumber(width) or 1
    return {first, first, 0, 1, 0}
  end

  local function declare(row, width)
    if width ~= '' and tonumber(width) ~= row[2] then
      row[1], row[2] = tonumber(width), tonumber(width)
    end
    return row
  end

  local function keep_lane(lane, row, since_before)
    if since_before > 0 then
      redis.call('ZREM', index, 'b\0' .. hex(since_before) .. '\0' .. lane)
    end
    if row[5] > 0 and row[3] == 0 and row[1] == row[2] then -- one that was set by hand stays
      redis.call('ZADD', index, 0, 'b\0' .. hex(row[5]) .. '\0' .. lane)
    end
    redis.call('HSET', names, 'l\0' .. lane, cmsgpack.pack(row))
    redis.call('ZADD', index, 0, 'l\0' .. lane)
  end

  local function count(lane, state)
    local prefix = 'g\0' .. state .. '\0' .. lane .. '\0'
    return redis.call('ZLEXCOUNT', index, '[' .. prefix, '(' .. prefix .. '\255')
  end

  -- The first runs in this state.
  local function first(lane, state, limit)
    local prefix, found = 'g\0' .. state .. '\0' .. lane .. '\0', {}
    for i, each in ipairs(redis.call('ZRANGEBYLEX', index, '[' .. prefix, '(' .. prefix .. '\255', 'LIMIT', 0, limit)) do
      found[i] = string.sub(each, #prefix + 25) -- behind ten digits, twelve, and two zeros
    end
    return found
  end

  local function place_of(id)
    local packed = redis.call('HGET', names, 'p\0' .. id)
    if not packed then
      return nil
    end
    local place = {id = id}
    place.epoch, place.state, place.lane, place.rank, place.number, place.wake, place.home, place.until_ms =
      unpack(cmsgpack.unpack(packed))
    return place
  end

  local function member(place)
    local order = place.rank .. '\0' .. hex(place.number) .. '\0' .. place.id
    return 'g\0' .. place.state .. '\0' .. place.lane .. '\0' .. order
  end

  local function forget_members(place)
    if place.state ~= 'l' then
      redis.call('ZREM', index, member(place))
    end
    if place.state == 'r' then
      redis.call('ZREM', index, 'h\0' .. hex(place.until_ms) .. '\0' .. place.id)
    end
  end

  local function keep_place(place)
    local packed = cmsgpack.pack({
      place.epoch, place.state, place.lane, place.rank, place.number, place.wake, place.home, place.until_ms,
    })
    redis.call('HSET', names, 'p\0' .. place.id, packed)
    if place.state ~= 'l' then
      redis.call('ZADD', index, 0, member(place))
    end
    if place.state == 'r' then
      redis.call('ZADD', index, 0, 'h\0' .. hex(place.until_ms) .. '\0' .. place.id)
    end
  end

  local function put(place, state)
    forget_members(place)
    place.state = state
    keep_place(place)
  end

  -- Lets a run go whose turn it is: here, if it is here; and if Redis lets us look at it, since its key could not be
  -- declared. Otherwise by a message.
  local function go(place)
    local run = tag .. 'run:' .. place.id
    local row, failed
    if place.home then
      row, failed = fields_of(run, LANED, redis.pcall)
    end
    if place.home and not failed then
      local prefix = row and wake_parked(index, run, place.id, row, place.epoch, place.wake)
      told[#told + 1] = place.id
      woken[#woken + 1] = prefix or nil
    else
      left[#left + 1] = leave(out, {'go', place.id, place.epoch, place.wake})
    end
  end

  -- Makes those active that may go now. The caller attends to the run `but` itself.
  local function promote(lane, row, but)
    local room = row[3] == 0 and row[1] - count(lane, 'a') or 0
    if room <= 0 then
      return
    end
    for _, id in ipairs(first(lane, 'p', room)) do
      local place = place_of(id)
      put(place, 'a')
      if id ~= but then
        go(place)
      end
    end
  end

  local function is_empty(lane)
    return count(lane, 'a') + count(lane, 'p') + count(lane, 'r') == 0
  end

  local function next_place(lane, given, state)
    local row = declare(lane_row(lane) or new_lane(given.width), given.width)
    local since = row[5]
    local place = place_of(given.id)
    local number = place and place.state == 'r' and place.number
    if not number then
      number, row[4] = row[4], row[4] + 1
    end
    row[5] = 0
    keep_lane(lane, row, since)
    if place then
      forget_members(place)
    end
    keep_place({
      id = given.id, epoch = given.epoch, state = state, lane = lane, rank = given.rank, number = number,
      wake = given.wake, home = given.home, until_ms = given.until_ms or 0,
    })
    return row
  end

  local function vacate(place)
    forget_members(place)
    local row = lane_row(place.lane)
    if not row then
      return
    end
    promote(place.lane, row)
    if is_empty(place.lane) and row[5] == 0 then
      row[5] = now
      keep_lane(place.lane, row, 0)
    end
  end

  local lanes = {left = left, told = told, woken = woken, first = first, count = count, lane_row = lane_row}
  lanes.place_of = place_of

  -- Why a run gets no place, and who is there first; nothing if it gets one. Those that are reserved may all come, and
  -- those of them that would be active at once are not parked. The lane is as wide as the run would make it.
  function lanes.no_room(lane, parked_max, if_free, width)
    local row = declare(lane_row(lane) or new_lane(''), width)
    local active, parked, reserved = count(lane, 'a'), count(lane, 'p'), count(lane, 'r')
    local there = first(lane, 'a', 1)[1] or first(lane, 'p', 1)[1] or first(lane, 'r', 1)[1]
    if if_free and active + parked + reserved > 0 then
      return 'busy', there
    end
    local room = row[3] == 0 and math.max(0, row[1] - active - parked) or 0
    if parked_max ~= '' and parked + math.max(0, reserved - room) >= tonumber(parked_max) then
      return 'full', there
    end
  end

  function lanes.reserve(lane, given)
    next_place(lane, given, 'r')
  end

  function lanes.give_back(id)
    local place = place_of(id)
    if place and place.state == 'r' then
      redis.call('HDEL', names, 'p\0' .. id)
      vacate(place)
    end
  end

  -- Gives the run a place, unless it has one. Returns whether it is active.
  function lanes.enter(lane, given)
    local place = place_of(given.id)
    if place and place.state == 'l' and tonumber(place.epoch) >= tonumber(given.epoch) then
      return false -- it has left since
    end
    if place and (place.state == 'a' or place.state == 'p') then
      if tonumber(place.epoch) < tonumber(given.epoch) then -- it was blocked, and goes on where it is
        place.epoch, place.wake = given.epoch, given.wake
        keep_place(place)
        if place.state == 'a' and not place.home then
          go(place)
        end
      end
      return place.state == 'a'
    end
    promote(lane, next_place(lane, given, 'p'), given.home and given.id)
    return place_of(given.id).state == 'a'
  end

  -- Gives the place of a run up, unless it has entered again since. Without an epoch, in any case.
  function lanes.leave(lane, id, epoch, home)
    local place = place_of(id)
    if place and epoch ~= '' and tonumber(place.epoch) > tonumber(epoch) then
      return
    end
    local had = place and place.state ~= 'l'
    if home or epoch == '' then
      redis.call('HDEL', names, 'p\0' .. id)
    else
      local packed = cmsgpack.pack({epoch, 'l', lane, '', 0, '', false, 0})
      redis.call('HSET', names, 'p\0' .. id, packed)
    end
    if had then
      vacate(place)
    end
  end

  function lanes.set(lane, width, paused)
    local row = lane_row(lane)
    local since = row and row[5] or 0
    if not row then
      row = new_lane('')
      row[5] = now
    end
    row[1], row[3] = tonumber(width), tonumber(paused)
    keep_lane(lane, row, since)
    promote(lane, row)
  end

  function lanes.forget(lane)
    local row = lane_row(lane)
    if row and row[5] > 0 then
      redis.call('ZREM', index, 'l\0' .. lane, 'b\0' .. hex(row[5]) .. '\0' .. lane)
      redis.call('HDEL', names, 'l\0' .. lane)
    end
  end

  return lanes
end
