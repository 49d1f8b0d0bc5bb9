-- Takes all costs, or nothing. Replies with the instant, and what was kept of each before.
local now_us, before, passes = now * 1000, {now}, true
for place, cost in ipairs(costs) do
  local due_us = tonumber(redis.call('GET', counts[place]) or 0)
  before[place + 1] = due_us
  cost.kept_us = math.max(now_us, due_us) + tonumber(cost.takes_us)
  passes = passes and cost.kept_us <= now_us + tonumber(cost.burst_us)
end
for place, cost in ipairs(costs) do
  if passes and cost.kept_us > now_us then
    redis.call('SET', counts[place], string.format('%.0f', cost.kept_us), 'PX', math.ceil((cost.kept_us - now_us) / 1000))
  end
end
return before
