-- Delivers messages to a run that has not ended; with a key, only as long as that is its own. It may lose it by this.
local index, names, run, box, mail, blobs = unpack(KEYS)
local now, id, needs_key, loses_key = instant(take()), take(), take() == '1', take() == '1'
local large, envelopes = takes(), takes() -- id, scope and former scope in this shard, scope at all, body

for i = 1, #envelopes, 5 do
  local receiver = received_in(names, envelopes[i + 1], envelopes[i + 2])
  if receiver then
    return {'received', receiver}
  end
  if redis.call('HEXISTS', box, envelopes[i]) == 1 then
    return {'received', id}
  end
end
local row = redis.call('HMGET', run, 'f', 'k', 'kn')
if not row[1] or row[1] ~= '' or (needs_key and row[2] ~= '1') then
  return {'refused', redis.call('HGETALL', run)}
end
if loses_key then
  redis.call('HSET', run, 'k', 0)
  if redis.call('HGET', names, row[3]) == id then
    redis.call('HDEL', names, row[3])
  end
end
set(blobs, large)
local told, woken = {}, {}
for i = 1, #envelopes, 5 do
  local message, scope, _, place, body = unpack(envelopes, i, i + 4)
  local got, prefix = deliver(index, names, run, box, mail, id, message, scope, place, body, now)
  if got then
    told[1] = id
    woken[1] = prefix or nil
  end
end
return {'ok', redis.call('HGETALL', run), told, woken}
