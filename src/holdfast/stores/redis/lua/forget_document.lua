-- Removes a document that has expired. One whose versions have run ahead of the clock stays a moment longer: made
-- again, it must not repeat them.
local stored = redis.call('HGET', docs, place)
if not stored then
  return 0
end
local version, expires, _, members = unpack(cmsgpack.unpack(stored))
if expires == '' or tonumber(expires) > now or tonumber(version) >= now then
  return 0
end
for _, member in ipairs(members) do
  redis.call('ZREM', index, member)
end
redis.call('HDEL', docs, place)
return 1
