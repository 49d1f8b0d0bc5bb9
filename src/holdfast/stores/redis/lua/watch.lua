-- Adds a watcher, which is told how a run ends; if it has ended, the message is left at once.
local status, epoch, output, failure, finished = unpack(redis.call('HMGET', run, 's', 'e', 'out', 'err', 'f'))
if not status then
  return reply({verdict = 'refused'})
end
local left = {}
if watcher ~= '' then
  redis.call('HSET', aux, 'w\0' .. watcher, '')
  if finished ~= '' then
    if life ~= '0' then
      epoch = epoch .. '.' .. life
    end
    left[1] = leave(out, {'tell', id, epoch, status, output, failure, watcher})
  end
end
return reply({verdict = 'ok', row = row_of(run), left = left})
