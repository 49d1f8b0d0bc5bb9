-- The next list among the arguments, which stands behind its length. `next_argument` is where it begins.
local function next_list()
  local list, length = {}, tonumber(ARGV[next_argument])
  for i = 1, length do
    list[i] = ARGV[next_argument + i]
  end
  next_argument = next_argument + 1 + length
  return list
end
