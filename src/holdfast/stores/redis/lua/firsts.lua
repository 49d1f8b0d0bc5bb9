-- The distinct parts that follow a prefix, up to the next zero: one seek each, however many members have it.
local found, from = {}, '[' .. prefix
while true do
  local first = unpack(redis.call('ZRANGEBYLEX', index, from, '(' .. prefix .. '\255', 'LIMIT', 0, 1))
  if not first then
    return found
  end
  local part = string.sub(first, #prefix + 1, string.find(first, '\0', #prefix + 1, true) - 1)
  found[#found + 1] = part
  from = '(' .. prefix .. part .. '\0\255'
end
