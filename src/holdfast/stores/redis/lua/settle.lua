-- What becomes of a run at its fence, with all that belongs to it: the successor that takes over its key, too.
local SETTLED = {'c', 'e', 'n', 'l', 'k', 'kn', 'ax', 'out', 'err', unpack(INDEXED)}

local row = fields_of(run, SETTLED)
if not row then
  return reply({verdict = 'refused'})
end
if row.c == change then
  return reply({verdict = 'again', row = row_of(run)})
end
-- Without its key the run has no successor: what that was to take over stays unread.
local succeeded = successor ~= '' and redis.call('HGET', names, row.kn) == id
local unread = row.u - (succeeded and #moves or 0)
for _, message in ipairs(read) do -- an end by another process may name some that the owner has read since
  unread = unread - redis.call('HEXISTS', mail, message)
end
if row.e ~= epoch or row.n ~= nonce or row.l ~= position or (ends and unread > 0 and row.f == '') then
  return reply({verdict = 'refused', row = row_of(run)})
end

local was_over, before = row.f ~= '', members_of(id, row)
local written = goes_on and {'l', length, 'c', change} or moved -- while its owner goes on, nothing else has moved
for i = 1, #written, 2 do
  row[written[i]] = written[i + 1]
end
row.u = string.format('%d', unread)
if row.s == 'waiting' and unread > 0 then
  row.w = string.format('%d', now())
end
for _, part in ipairs(further) do
  written[#written + 1] = part
end
-- Behind the others: what a message has changed since the owner decided counts, and not what the owner knew.
for _, part in ipairs({'u', row.u, 'w', row.w}) do
  written[#written + 1] = part
end
redis.call('HSET', run, unpack(written))
reindex(index, before, members_of(id, row))
if loses_key then
  redis.call('HSET', run, 'k', 0)
  if redis.call('HGET', names, row.kn) == id then
    redis.call('HDEL', names, row.kn)
  end
end
if attributes ~= '' then
  for _, member in ipairs(row.ax ~= '' and cmsgpack.unpack(row.ax) or {}) do
    redis.call('ZREM', index, member)
  end
  for _, member in ipairs(cmsgpack.unpack(attributes)) do
    redis.call('ZADD', index, 0, member)
  end
  redis.call('HSET', run, 'ax', attributes)
end
for _, message in ipairs(read) do
  redis.call('HDEL', mail, message)
  redis.call('HSETNX', box, message, '')
end
if replaces_journal then
  redis.call('DEL', journal, blobs)
end
if entries ~= '' then
  redis.call('RPUSH', journal, entries)
end
set(blobs, large)
set(aux, beats)
set(aux, opens)
keep(index, names, kept)
local left, told = {}, {}
for _, hook in ipairs(closes) do
  local opened = redis.call('HGET', aux, hook)
  if opened then
    redis.call('HDEL', aux, hook)
    local _, token, _, opening = unpack(cmsgpack.unpack(opened))
    if token ~= '' then
      left[#left + 1] = leave(out, {'free', token, id, opening})
    end
  end
end
local lanes = #leaves + #enters > 0 and lanes_of(index, names, out, now())
for _, leaving in ipairs(leaves) do
  redis.call('ZREM', index, leaving.member)
  if leaving.home == '1' then
    lanes.leave(leaving.lane, id, row.e, true)
  else
    lanes.left[#lanes.left + 1] = leave_packed(out, leaving.message)
  end
end
for _, entering in ipairs(enters) do
  enter_lane(lanes, entering, {id = id, index = index, run = run, out = out}, take_turn)
end
if ends and not was_over then
  for _, field in ipairs(redis.call('HKEYS', aux)) do
    if string.sub(field, 1, 2) == 'w\0' then
      left[#left + 1] = leave(out, {'tell', id, row.e, row.s, row.out, row.err, string.sub(field, 3)})
    end
  end
end

-- The successor, and the messages that it takes over.
if succeeded then
  local has_mail = #moves > 0 -- not if its journal was copied from the run that has received them
  for _, message in ipairs(inherits) do
    has_mail = has_mail or redis.call('HGET', names, message.scope) == id
  end
  if has_mail then
    redis.call('HSET', run, 'k', 0)
    redis.call('HINCRBY', run, 'e', 1)
    redis.call('HSET', names, row.kn, successor)
    redis.call('HSET', next_run, unpack(next_fields))
    redis.call('RPUSH', next_journal, unpack(next_entries))
    redis.call('ZADD', index, unpack(next_members))
    set(next_blobs, next_large)
    for _, entering in ipairs(next_enters) do
      lanes = lanes or lanes_of(index, names, out, now())
      enter_lane(lanes, entering, {id = successor, index = index, run = next_run, out = out}, next_turn)
    end
    local receiver = {id = successor, index = index, names = names, run = next_run, box = next_box, mail = next_mail}
    for _, message in ipairs(inherits) do
      if redis.call('HGET', names, message.scope) == id then
        redis.call('HDEL', box, message.id)
        deliver(receiver, message, now())
      end
    end
    for _, message in ipairs(moves) do
      local waiting = redis.call('HGET', mail, message.id)
      redis.call('HDEL', mail, message.id)
      redis.call('HDEL', box, message.id)
      if waiting then
        message.body = string.sub(waiting, 13) -- behind the twelve digits of its place in the old inbox
        deliver(receiver, message, now())
      end
    end
    told[1] = successor -- messages of the successor stay in this shard: it has the same key
  end
end
if lanes then
  for _, each in ipairs(lanes.left) do
    left[#left + 1] = each
  end
  for _, each in ipairs(lanes.told) do
    told[#told + 1] = each
  end
end
if row.s ~= 'waiting' and #left == 0 and #told == 0 and #enters == 0 then
  return reply({verdict = 'ok'})
end
return reply({
  verdict = 'ok',
  row = (row.s == 'waiting' or #enters > 0) and row_of(run),
  left = left,
  told = told,
  woken = lanes and lanes.woken,
})
