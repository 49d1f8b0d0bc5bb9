-- How this store is laid out, and into how many shards: the first who wants one decides. Nothing wanted: only a look.
local known = redis.call('GET', KEYS[1])
if not known and ARGV[1] ~= '' then
  redis.call('SET', KEYS[1], ARGV[1])
  known = ARGV[1]
end
return known
