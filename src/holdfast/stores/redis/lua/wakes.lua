-- The first run of each workflow and priority, whether or not it may be claimed already.
local found = {}
for _, prefix in ipairs(prefixes) do
  local from = '[' .. prefix
  while true do
    local first = unpack(redis.call('ZRANGEBYLEX', index, from, '(' .. prefix .. '\255', 'LIMIT', 0, 1))
    if not first then
      break
    end
    found[#found + 1] = first
    from = '(' .. string.sub(first, 1, #prefix + 11) .. '\255'
  end
end
return found
