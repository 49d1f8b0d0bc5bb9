-- The instant of this script: Redis' own, unless a test brings one.
local function instant(given)
  if given ~= '' then
    return tonumber(given)
  end
  local seconds, micros = unpack(redis.call('TIME'))
  return seconds * 1000 + math.floor(micros / 1000)
end

local function hex(ms)
  return string.format('%012x', ms)
end
