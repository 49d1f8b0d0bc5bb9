-- Arguments, one after the other: take() the next one, takes() a list that its length goes before.
local taken = 0

local function take()
  taken = taken + 1
  return ARGV[taken]
end

local function takes()
  local list = {}
  for i = 1, tonumber(take()) do
    list[i] = take()
  end
  return list
end

-- Sets fields of a hash, a name and a value at a time: Lua hands over only some thousand arguments at once.
local function set(key, fields)
  for i = 1, #fields, 2 do
    redis.call('HSET', key, fields[i], fields[i + 1])
  end
end
