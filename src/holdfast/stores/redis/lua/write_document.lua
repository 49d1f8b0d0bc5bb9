-- Stores a document in place of the version that it replaces.
local stored = redis.call('HGET', docs, place)
local old_version, old_expires, old_members, old = '', '', {}, nil
if stored then
  old_version, old_expires, old, old_members = unpack(cmsgpack.unpack(stored))
end
if old == document then
  return 1 -- offered again after a lost reply
end
local lives = stored and (old_expires == '' or tonumber(old_expires) > now)
if replaces ~= (lives and old_version or '') then
  return 0
end
if stored and tonumber(version) <= tonumber(old_version) then
  return 0
end
-- First what Redis refuses when its memory is full: then nothing has been written.
redis.call('HSET', docs, place, cmsgpack.pack({version, expires, document, document_members}))
for _, member in ipairs(old_members) do
  redis.call('ZREM', index, member)
end
for _, member in ipairs(document_members) do
  redis.call('ZADD', index, 0, member)
end
return 1
