-- Frees a token, as long as it is the one that was opened then.
local held = redis.call('HGET', names, token)
if held then
  local holder, _, _, opened = unpack(cmsgpack.unpack(held))
  if holder == id and opened == opening then
    redis.call('HDEL', names, token)
  end
end
return ''
