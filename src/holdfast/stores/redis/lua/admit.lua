-- Admits a run, unless it is there, its signal has been received before, or another run holds its key.

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
if key ~= '' then
  local holder = redis.call('HGET', names, key)
  if holder then
    if holder ~= held_by then
      return held_by_other(holder)
    end
    local holder_epoch, holder_nonce, finished = unpack(redis.call('HMGET', holder_run, 'e', 'n', 'f'))
    if epoch ~= '' and (holder_epoch ~= epoch or holder_nonce ~= nonce) then
      return held_by_other(holder)
    end
    redis.call('HSET', holder_run, 'k', 0)
    -- The epoch of a run that has ended grows: a retry that was decided before must not land. A live one keeps its
    -- owner, so its fence must stay good.
    if finished ~= '' then
      redis.call('HINCRBY', holder_run, 'e', 1)
    end
  end
  redis.call('HSET', names, key, id)
end
redis.call('HSET', run, unpack(fields))
redis.call('RPUSH', journal, entries)
redis.call('ZADD', index, unpack(index_members)) -- each behind its score
set(blobs, large)
set(aux, notes)
local left = {}
for _, claim in ipairs(claims) do
  left[#left + 1] = {redis.call('XADD', out, '*', 'm', claim), claim}
end
if #envelopes == 0 and #left == 0 then
  return reply({verdict = 'ok'})
end
local told, woken = {}, {}
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
  row = #envelopes > 0 and row_of(run),
  left = left,
  told = told,
  woken = woken,
})
