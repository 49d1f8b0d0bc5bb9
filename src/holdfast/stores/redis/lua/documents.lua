-- Documents that have not expired: those named, or those whose places follow a prefix in the index.
local found = {}
local function look(place)
  local stored = redis.call('HGET', docs, place)
  if stored then
    local _, expires, document = unpack(cmsgpack.unpack(stored))
    if expires == '' or tonumber(expires) > now then
      found[#found + 1] = document
    end
  end
end

for _, place in ipairs(places) do
  look(place)
end
local from = low
while from ~= '' and #found < limit do
  local members = redis.call('ZRANGEBYLEX', index, from, high, 'LIMIT', 0, limit)
  for _, member in ipairs(members) do
    if #found < limit then
      look(string.sub(member, width + 1))
    end
  end
  from = #members == limit and '(' .. members[#members] or ''
end
return found
