-- Admits a run, unless it is there, its signal has been received before, or another run holds its key.
local index, names, out, run, journal, box, mail, aux, blobs = unpack(KEYS, 1, 9)
local holder_run, holder_box, holder_mail = KEYS[10], KEYS[11], KEYS[12]
local now, id, key = instant(take()), take(), take()
local held_by, epoch, nonce = take(), take(), take()
local entries, fields, members, large, hooks, claims = take(), takes(), takes(), takes(), takes(), takes()
local envelopes = takes() -- for whom ('' is the run itself), id, scope, former scope, body

if redis.call('EXISTS', run) == 1 then
  return {'again', redis.call('HGETALL', run)}
end
for i = 1, #envelopes, 5 do
  local receiver = received_in(names, envelopes[i + 2], envelopes[i + 3])
  if receiver then
    return {'received', receiver}
  end
end
if key ~= '' then
  local holder = redis.call('HGET', names, key)
  if holder then
    if holder ~= held_by then
      return {'held', holder}
    end
    local row = redis.call('HMGET', holder_run, 'e', 'n', 'f')
    if epoch ~= '' and (row[1] ~= epoch or row[2] ~= nonce) then
      return {'held', holder}
    end
    redis.call('HSET', holder_run, 'k', 0)
    if row[3] ~= '' then
      redis.call('HINCRBY', holder_run, 'e', 1)
    end
  end
  redis.call('HSET', names, key, id)
end
redis.call('HSET', run, unpack(fields))
redis.call('RPUSH', journal, entries)
redis.call('ZADD', index, unpack(members)) -- each behind its score
set(blobs, large)
set(aux, hooks)
local left = {}
for _, claim in ipairs(claims) do
  left[#left + 1] = {redis.call('XADD', out, '*', 'm', claim), claim}
end
if #envelopes == 0 and #left == 0 then
  return {'ok'}
end
local told, woken = {}, {}
for i = 1, #envelopes, 5 do
  local to, message, scope, _, body = unpack(envelopes, i, i + 4)
  local got, prefix
  if to == '' then
    got, prefix = deliver(index, names, run, box, mail, id, message, scope, scope, body, now)
  elseif holder_run then
    got, prefix = deliver(index, names, holder_run, holder_box, holder_mail, to, message, scope, scope, body, now)
  end
  if got then
    told[#told + 1] = to == '' and id or to
    woken[#woken + 1] = prefix or nil
  end
end
return {'ok', #envelopes > 0 and redis.call('HGETALL', run) or {}, left, told, woken}
