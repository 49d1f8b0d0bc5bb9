-- Leaves a message for another shard, in the script that writes what it follows from: no failover can keep one of the
-- two and lose the other. It is there until a process has delivered it.
local function leave_packed(out, packed)
  return {redis.call('XADD', out, '*', 'm', packed), packed}
end

local function leave(out, message)
  return leave_packed(out, cmsgpack.pack(message))
end
