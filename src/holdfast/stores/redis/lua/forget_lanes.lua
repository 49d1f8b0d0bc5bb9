-- Forgets lanes that no run has used since then, and that were not set by hand.
local lanes = lanes_of(index, names, out, now)
local over = redis.call('ZRANGEBYLEX', index, '[b\0', '(b\0' .. hex(now - idle_ms + 1), 'LIMIT', 0, limit)
for _, member in ipairs(over) do
  lanes.forget(string.sub(member, 16)) -- behind twelve digits
end
return #over
