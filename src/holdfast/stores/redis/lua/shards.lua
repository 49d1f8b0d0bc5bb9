-- How this store is laid out, and into how many shards: the first process that wants one decides. With nothing wanted
-- it only looks.
local known = redis.call('GET', layout)
if not known and wanted ~= '' then
  redis.call('SET', layout, wanted)
  known = wanted
end
return known
