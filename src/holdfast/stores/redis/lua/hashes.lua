-- Names and values of a flat list, as Redis takes and returns them: for name, value in each_pair(flat) do ... end
local function each_pair(flat)
  local i = -1
  return function()
    i = i + 2
    return flat[i], flat[i + 1]
  end
end

-- Sets fields of a hash, a name and a value at a time: Lua hands over only some thousand arguments at once.
local function set(key, fields)
  for i = 1, #fields, 2 do
    redis.call('HSET', key, fields[i], fields[i + 1])
  end
end
