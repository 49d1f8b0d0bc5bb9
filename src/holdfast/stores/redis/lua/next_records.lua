-- The next list of records: tables with these names.
local function next_records(...)
  local list, length = {}, tonumber(ARGV[next_argument])
  next_argument = next_argument + 1
  for i = 1, length do
    local record = {}
    for _, name in ipairs({...}) do
      record[name] = ARGV[next_argument]
      next_argument = next_argument + 1
    end
    list[i] = record
  end
  return list
end
