-- The members of the index that follow from a row. The rest of them never changes, or is brought along by the
-- caller that writes. `sp`, `wp` and `at` are what such a member begins and ends with (see rows.py).
local INDEXED = {'s', 'o', 'w', 'u', 'f', 'x', 'sp', 'wp', 'at'}

local function fields_of(key, names, call)
  local values = (call or redis.call)('HMGET', key, unpack(names))
  if values.err or not values[1] then
    return nil, values.err
  end
  local row = {}
  for i, name in ipairs(names) do
    row[name] = values[i]
  end
  return row
end

local function members_of(id, row)
  local held = row.o ~= ''
  return {
    row.sp .. row.s .. '\0' .. row.at,
    row.w ~= '' and row.wp .. hex(row.w) .. '\0' .. id,
    held and 'o\0' .. row.o .. '\0' .. id,
    held and tonumber(row.u) > 0 and 'm\0' .. row.o .. '\0' .. id,
    row.f ~= '' and 'e' .. string.sub(row.sp, 2) .. hex(row.f) .. '\0' .. row.at,
    row.x ~= '' and 'x\0' .. hex(row.x) .. '\0' .. id,
  }
end

local function reindex(index, before, after)
  local gone, come = {}, {}
  for i = 1, 6 do
    if before[i] ~= after[i] then
      if before[i] then
        gone[#gone + 1] = before[i]
      end
      if after[i] then
        come[#come + 1] = 0
        come[#come + 1] = after[i]
      end
    end
  end
  if #gone > 0 then
    redis.call('ZREM', index, unpack(gone))
  end
  if #come > 0 then
    redis.call('ZADD', index, unpack(come))
  end
end
