-- Puts an item into a batch that has not begun, if there is room. The last one lets the batch go.
local former = received_in(names, scope, former_scope)
if former then
  return reply({verdict = 'received', holder = former})
end
local status, epoch, holds_key, unread, bytes = unpack(redis.call('HMGET', run, 's', 'e', 'k', 'u', 'gb'))
if status ~= 'pending' or epoch ~= '0' or holds_key ~= '1' or tonumber(unread) >= size then
  return reply({verdict = 'refused', row = status and row_of(run)})
end
if not bytes then -- what it was opened with
  bytes = 0
  for _, held in ipairs(redis.call('HVALS', mail)) do
    bytes = bytes + #held - 12 -- behind the digits of its place in the inbox
  end
end
if bytes + #body > bytes_max then
  return reply({verdict = 'refused', row = row_of(run)})
end
local item = {id = item_id, scope = scope, body = body}
if not deliver({id = id, index = index, names = names, run = run, box = box, mail = mail}, item, now) then
  return reply({verdict = 'received', holder = id})
end
redis.call('HSET', run, 'gb', string.format('%d', bytes + #body))
local woken = {}
if unread + 1 >= size then
  local row = fields_of(run, INDEXED)
  if row.w ~= '' and tonumber(row.w) > now then
    local before = members_of(id, row)
    row.w = string.format('%d', now)
    redis.call('HSET', run, 'w', row.w)
    reindex(index, before, members_of(id, row))
    woken[1] = row.wp
  end
end
return reply({verdict = 'ok', row = row_of(run), told = {id}, woken = woken})
