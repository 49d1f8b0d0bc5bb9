-- Keeps outs and audits in the order of the shard, in the script of the change that brings them.
local function keep(index, names, kept)
  for _, each in ipairs(kept) do
    local place = each.prefix .. hex(redis.call('HINCRBY', names, 'z', 1))
    redis.call('HSET', names, place, each.body)
    redis.call('ZADD', index, 0, place)
  end
end
