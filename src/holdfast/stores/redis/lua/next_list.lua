-- The next list among the arguments, which stands behind its length; lists at the end that are empty are not there.
-- `next_argument` is where it begins.
local NONE = {}
local function next_list()
  local length = tonumber(ARGV[next_argument] or 0)
  if length == 0 then
    next_argument = next_argument + 1
    return NONE
  end
  local first = next_argument + 1
  next_argument = first + length
  if length <= 1000 then
    return {unpack(ARGV, first, next_argument - 1)}
  end
  local list = {} -- Lua hands over only some thousand values at once
  for i = 1, length do
    list[i] = ARGV[first + i - 1]
  end
  return list
end
