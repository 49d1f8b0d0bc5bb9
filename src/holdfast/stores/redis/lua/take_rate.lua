-- Takes of a rate, as `rates.reserve` says: from when on it may go. What this run has taken it has taken once: then the
-- second value is 1.
local due, taken = 0, {}
local known = redis.call('GET', rate)
if known then
  due, taken = unpack(cmsgpack.unpack(known))
end
for _, each in ipairs(taken) do
  if each[1] == id then
    return {each[2], 1}
  end
end
local now_us = now * 1000
local goes_at_ms = math.ceil(math.max(now_us, due - burst_us) / 1000)
due = math.max(now_us, due) + cost_us
taken[#taken + 1] = {id, goes_at_ms}
if #taken > 64 then
  table.remove(taken, 1)
end
-- Longer than until it has come due, so that a start that is offered again still finds what it has taken.
redis.call('SET', rate, cmsgpack.pack({due, taken}), 'PX', math.ceil((due - now_us) / 1000) + kept_ms)
return {goes_at_ms, 0}
