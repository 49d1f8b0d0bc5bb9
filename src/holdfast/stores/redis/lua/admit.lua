-- Admits a run, unless it is there, its signal has been received before, another run holds its key, or its lane has no
-- room.

local function held_by_other(holder)
  return reply({verdict = 'held', holder = holder, row = row_of(run_beside(run, id, holder), redis.pcall)})
end

if redis.call('EXISTS', run) == 1 then
  return reply({verdict = 'again', row = row_of(run)})
end
for _, envelope in ipairs(envelopes) do
  local receiver = received_in(names, envelope.scope, envelope.former)
  if receiver then
    return reply({verdict = 'received', holder = receiver})
  end
end
local holder, finished = key ~= '' and redis.call('HGET', names, key), nil
if holder then
  if holder ~= held_by then
    return held_by_other(holder)
  end
  local holder_epoch, holder_nonce
  holder_epoch, holder_nonce, finished = unpack(redis.call('HMGET', holder_run, 'e', 'n', 'f'))
  if epoch ~= '' and (holder_epoch ~= epoch or holder_nonce ~= nonce) then
    return held_by_other(holder)
  end
end
local lanes = #enters > 0 and lanes_of(index, names, out, now())
for _, entering in ipairs(enters) do -- one, if any
  local no_room, first = entering.no_room, nil
  if entering.home == '1' then
    no_room, first = lanes.no_room(entering.lane, entering.parked_max, entering.if_free == '1', entering.width)
  elseif no_room == '' and entering.until_ms ~= '' and now() > tonumber(entering.until_ms) then
    no_room = 'late' -- its place may be another's by now
  end
  if no_room and no_room ~= '' then
    return reply({verdict = no_room, holder = first})
  end
end
if holder then
  redis.call('HSET', holder_run, 'k', 0)
  -- The epoch of a run that has ended grows: a retry that was decided before must not land. A live one keeps its
  -- owner, so its fence must stay good.
  if finished ~= '' then
    redis.call('HINCRBY', holder_run, 'e', 1)
  end
end
if key ~= '' then
  redis.call('HSET', names, key, id)
end
redis.call('HSET', run, unpack(fields))
redis.call('RPUSH', journal, entries)
redis.call('ZADD', index, unpack(index_members)) -- each behind its score
set(blobs, large)
set(aux, notes)
keep(index, names, kept)
local left = {}
for _, claim in ipairs(claims) do
  left[#left + 1] = leave_packed(out, claim)
end
local told, woken = {}, {}
for _, entering in ipairs(enters) do
  enter_lane(lanes, entering, {id = id, index = index, run = run, out = out}, take_turn)
  told, woken = lanes.told, lanes.woken
  for _, message in ipairs(lanes.left) do
    left[#left + 1] = message
  end
end
if #envelopes == 0 and #left == 0 and not lanes then
  return reply({verdict = 'ok'})
end
for _, envelope in ipairs(envelopes) do
  local got, prefix, receiver
  if envelope.to == '' then
    receiver = {id = id, index = index, names = names, run = run, box = box, mail = mail}
  elseif holder_run then
    receiver = {id = envelope.to, index = index, names = names, run = holder_run, box = holder_box, mail = holder_mail}
  end
  if receiver then
    got, prefix = deliver(receiver, envelope, now())
  end
  if got then
    told[#told + 1] = receiver.id
    woken[#woken + 1] = prefix or nil
  end
end
return reply({
  verdict = 'ok',
  row = (#envelopes > 0 or lanes) and row_of(run),
  left = left,
  told = told,
  woken = woken,
})
