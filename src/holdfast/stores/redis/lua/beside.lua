-- The key of the row of another run in the shard of this one.
-- The row of the run that holds a key goes along with the reply, so that a repeated start takes one round trip. Its key is
-- not declared: who holds the key is known only in the script. It lies in this slot, as all runs with this key do; and
-- while the slot moves we do not come here, since the key of the new run is missing. Where a proxy or an access list wants
-- to know every key before, there is no row, and the caller looks the holder up.
local function run_beside(run, id, other)
  return string.sub(run, 1, -#id - 1) .. other
end
