-- Gives back what a run has taken of a rate and has no use for, as it was not admitted.
local known = redis.call('GET', rate)
if not known then
  return
end
local due, taken = unpack(cmsgpack.unpack(known))
for place, each in ipairs(taken) do
  if each[1] == id then
    table.remove(taken, place)
    redis.call('SET', rate, cmsgpack.pack({due - cost_us, taken}), 'KEEPTTL')
    return
  end
end
