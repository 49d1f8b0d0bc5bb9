-- Hands a run that may be claimed to an owner.
-- By the clock that is ahead: a wake-up may have been written by either, and after a failover the new primary's may be
-- behind. By one alone a run could be listed as ready, and not be given.
local now = math.max(server_now, client_now)
local row = fields_of(run, INDEXED)
if not row or row.w == '' or tonumber(row.w) > now then
  return {}
end
local before = members_of(id, row)
row.s, row.o, row.w = 'running', owner, ''
redis.call('HSET', run, 's', 'running', 'o', owner, 'n', nonce, 'w', '')
redis.call('HINCRBY', run, 'e', 1)
if redis.call('HGET', run, 'b') == '' then
  redis.call('HSET', run, 'b', string.format('%d', now))
end
reindex(index, before, members_of(id, row))
return row_of(run)
