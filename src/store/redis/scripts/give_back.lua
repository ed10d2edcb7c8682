-- Deletes each key whose record still has the first nine bytes in the same place of ARGV: version,
-- state and all eight bytes of the nonce; unless it is a session's that has seen more than the one
-- event since.
-- Returns how many were deleted, and how many stay.
local deleted, kept = 0, 0
for index, key in ipairs(KEYS) do
  local value = redis.pcall('GET', key)
  if type(value) == 'string' and string.sub(value, 1, 9) == ARGV[index] then
    local is_session = #value == 26 and string.byte(value, 10) == 9
    if is_session and string.sub(value, 11, 18) ~= string.sub(value, 19, 26) then
      kept = kept + 1
    else
      deleted = deleted + redis.call('DEL', key)
    end
  end
end
return { deleted, kept }
