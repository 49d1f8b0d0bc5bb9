-- Leaves a message for another shard. It is there until a process has delivered it.
local function leave(out, message)
  local packed = cmsgpack.pack(message)
  return {redis.call('XADD', out, '*', 'm', packed), packed}
end
