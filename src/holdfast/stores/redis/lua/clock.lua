-- The instant of this script: Redis' own, unless a test brings one.
local function instant(given)
  if given ~= '' then
    return tonumber(given)
  end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function hex(ms)
  return string.format('%012x', ms)
end
