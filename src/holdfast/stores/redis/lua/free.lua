-- Takes a run from its owner, so that it may be claimed at once.
local row = fields_of(run, INDEXED)
if not row or row.o ~= owner then
  return ''
end
local before = members_of(id, row)
row.s, row.o, row.w = 'pending', '', string.format('%d', now)
redis.call('HSET', run, 's', 'pending', 'o', '', 'n', '', 'v', '', 'w', row.w)
redis.call('HINCRBY', run, 'e', 1)
reindex(index, before, members_of(id, row))
return row.wp
