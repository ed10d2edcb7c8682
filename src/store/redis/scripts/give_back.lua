-- Deletes each key whose record still has all eight bytes of the nonce in the same place of ARGV.
-- Returns how many.
local deleted = 0
for index, key in ipairs(KEYS) do
  local value = redis.pcall('GET', key)
  if type(value) == 'string' and #value >= 10 and string.byte(value, 1) >= 0x80 and string.sub(value, 2, 9) == ARGV[index] then
    deleted = deleted + redis.call('DEL', key)
  end
end
return deleted
