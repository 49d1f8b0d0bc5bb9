-- The next list of records: tables with these names.
local function next_records(...)
  local length = tonumber(ARGV[next_argument] or 0)
  next_argument = next_argument + 1
  if length == 0 then
    return NONE
  end
  local list, names = {}, {...}
  for i = 1, length do
    local record = {}
    for _, name in ipairs(names) do
      record[name] = ARGV[next_argument]
      next_argument = next_argument + 1
    end
    list[i] = record
  end
  return list
end
