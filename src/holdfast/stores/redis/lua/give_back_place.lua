-- Takes back places that were reserved for runs which did not come.
local lanes = lanes_of(index, names, out, now)
for _, id in ipairs(ids) do
  lanes.give_back(id)
end
return ''
