-- Removes a run whose retention is over, with all that belongs to it. What it has in other shards is left as messages.
local row = fields_of(run, INDEXED)
if not row or row.x == '' or tonumber(row.x) > now then
  return reply({verdict = 'refused'})
end
local left = {}
reindex(index, members_of(id, row), {})
for _, member in ipairs(lasting_members) do
  redis.call('ZREM', index, member)
end
local attributes, key = unpack(redis.call('HMGET', run, 'ax', 'kn'))
for _, member in ipairs(attributes ~= '' and cmsgpack.unpack(attributes) or {}) do
  redis.call('ZREM', index, member)
end
if key ~= '' and redis.call('HGET', names, key) == id then
  redis.call('HDEL', names, key)
end
for _, place in ipairs(redis.call('HVALS', box)) do
  if string.sub(place, 1, 6) == 's\0key/' then
    redis.call('HDEL', names, place)
  elseif place ~= '' then
    left[#left + 1] = leave(out, {'forget', place, id})
  end
end
local watched, known = false, redis.call('HGETALL', aux)
for field, opened in each_pair(known) do
  local kind = string.sub(field, 1, 2)
  watched = watched or kind == 'w\0'
  if kind == 'h\0' then
    local _, token, _, opening = unpack(cmsgpack.unpack(opened))
    if token ~= '' then
      left[#left + 1] = leave(out, {'free', token, id, opening})
    end
  end
end
if watched then
  -- A watcher may still have to be told its outcome, and that may be large: the process that delivers it looks here.
  redis.call('PEXPIRE', blobs, blobs_ms)
else
  redis.call('DEL', blobs)
end
redis.call('DEL', run, journal, box, mail, aux)
for _, message in ipairs(further) do -- about what it has in the shard of its lane
  left[#left + 1] = leave_packed(out, message)
end
return reply({verdict = 'ok', left = left})
