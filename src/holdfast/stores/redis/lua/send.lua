-- Delivers messages to a run that has not ended; with a key, only as long as that is its own. It may lose it by this.
for _, envelope in ipairs(envelopes) do
  local receiver = received_in(names, envelope.scope, envelope.former)
  if receiver then
    return reply({verdict = 'received', holder = receiver})
  end
  if redis.call('HEXISTS', box, envelope.id) == 1 then
    return reply({verdict = 'received', holder = id})
  end
end
local finished, holds_key, key = unpack(redis.call('HMGET', run, 'f', 'k', 'kn'))
if not finished or finished ~= '' or (needs_key and holds_key ~= '1') then
  return reply({verdict = 'refused', row = row_of(run)})
end
if loses_key then
  redis.call('HSET', run, 'k', 0)
  if redis.call('HGET', names, key) == id then
    redis.call('HDEL', names, key)
  end
end
set(blobs, large)
keep(index, names, kept)
local told, woken = {}, {}
local receiver = {id = id, index = index, names = names, run = run, box = box, mail = mail}
for _, envelope in ipairs(envelopes) do
  local got, prefix = deliver(receiver, envelope, now)
  if got then
    told[1] = id
    woken[1] = prefix or nil
  end
end
return reply({verdict = 'ok', row = row_of(run), told = told, woken = woken})
