-- The runs that may be claimed now, the first of each workflow and priority; highest priority first.
local now = math.max(server_now, client_now)
local found = {}
for _, prefix in ipairs(prefixes) do
  local left, from = limit, '[' .. prefix
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
end
return found
