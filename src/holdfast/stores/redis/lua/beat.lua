-- Keeps the last heartbeats of effects, at the fence of their run.
local epoch_now, nonce_now = unpack(redis.call('HMGET', run, 'e', 'n'))
if epoch_now ~= epoch or nonce_now ~= nonce then
  return reply({verdict = 'refused', row = row_of(run)})
end
set(aux, beats)
return reply({verdict = 'ok'})
