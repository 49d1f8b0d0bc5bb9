-- Gives a run that has not begun the input of a newer start, and puts it off.
local row = fields_of(run, {'c', 'e', 'n', 'k', 'ax', unpack(INDEXED)})
if not row then
  return reply({verdict = 'refused'})
end
if row.c == change then
  return reply({verdict = 'again', row = row_of(run)})
end
if row.s ~= 'pending' or row.e ~= epoch or row.n ~= nonce or row.k ~= '1' then
  return reply({verdict = 'refused', row = row_of(run)})
end
local before = members_of(id, row)
local place = row.w == '' and redis.call('HGET', names, 'p\0' .. id)
if place then -- it is parked, see lanes.lua: its place has when it wakes
  place = cmsgpack.unpack(place)
  place[6] = wake
  redis.call('HSET', names, 'p\0' .. id, cmsgpack.pack(place))
end
row.w = row.w ~= '' and wake or ''
redis.call('HSET', run, 'w', row.w, 'ax', attributes, unpack(written))
reindex(index, before, members_of(id, row))
for _, member in ipairs(row.ax ~= '' and cmsgpack.unpack(row.ax) or {}) do
  redis.call('ZREM', index, member)
end
for _, member in ipairs(attributes ~= '' and cmsgpack.unpack(attributes) or {}) do
  redis.call('ZADD', index, 0, member)
end
redis.call('DEL', journal, blobs)
redis.call('RPUSH', journal, entries)
set(blobs, large)
return reply({verdict = 'ok', row = row_of(run)})
