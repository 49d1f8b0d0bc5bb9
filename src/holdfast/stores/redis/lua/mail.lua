-- The unread messages of a run, if this owner holds it.
if redis.call('HGET', run, 'o') ~= owner then
  return {}
end
return redis.call('HGETALL', mail)
