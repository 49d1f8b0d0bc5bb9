-- The runs that may be claimed now, the first of each workflow and priority; highest priority first.
-- Behind them those that take turns, if any do, by their tags.
local function add_turns(found, prefix, due)
  local left, from = limit, '[' .. prefix
  while left > 0 do
    local turns = redis.call('ZRANGEBYLEX', index, from, '(' .. prefix .. '\255', 'LIMIT', 0, limit)
    for _, member in ipairs(turns) do
      local wake = string.sub(member, #prefix + 25, #prefix + 36) -- behind ten digits of rank, and twelve of the tag
      if wake <= due and left > 0 then
        found[#found + 1] = member
        left = left - 1
      end
    end
    if #turns < limit then
      break
    end
    from = '(' .. turns[#turns]
  end
end

local now = math.max(server_now, client_now)
local found = {}
for _, prefix in ipairs(prefixes) do
  local left, from = limit, '[' .. prefix
  local before = #found
  while left > 0 do
    local first = unpack(redis.call('ZRANGEBYLEX', index, from, '(' .. prefix .. '\255', 'LIMIT', 0, 1))
    if not first then
      break
    end
    local priority = string.sub(first, 1, #prefix + 11) -- ten digits and what parts them from the instant
    local due = redis.call('ZRANGEBYLEX', index, '[' .. priority, '(' .. priority .. hex(now + 1), 'LIMIT', 0, left)
    for _, member in ipairs(due) do
      found[#found + 1] = member
    end
    left = left - #due
    from = '(' .. priority .. '\255'
  end
  if #found > before then
    add_turns(found, 't' .. string.sub(prefix, 2), hex(now))
  end
end
return found
