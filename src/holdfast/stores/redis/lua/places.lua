-- The places of these runs, packed; false where there is none.
local found = {}
for i, id in ipairs(ids) do
  found[i] = redis.call('HGET', names, 'p\0' .. id)
end
return found
