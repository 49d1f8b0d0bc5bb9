-- Forgets that a run has left its lane, since that run is gone.
local packed = redis.call('HGET', names, 'p\0' .. id)
if packed then
  local _, state = unpack(cmsgpack.unpack(packed))
  if state == 'l' then
    redis.call('HDEL', names, 'p\0' .. id)
  end
end
return ''
