-- The run that has received a message before, by the name of its id in a scope, or by the name that it had formerly.
local function received_in(names, scope, former)
  for _, name in ipairs({scope, former}) do
    local receiver = name ~= '' and redis.call('HGET', names, name)
    if receiver then
      return receiver, name
    end
  end
end
