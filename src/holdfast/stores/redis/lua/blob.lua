-- A large value of a run that is there.
if redis.call('EXISTS', run) == 0 then
  return false
end
return redis.call('HGET', blobs, digest)
