-- Deletes each key under which the settled claim stands that the caller found. ARGV, for each key:
-- the first nine bytes of its record, or nothing for a foreign value.
-- Returns, for each key, whether it was deleted.
local deleted = {}
for index, key in ipairs(KEYS) do
  local value = redis.pcall('GET', key)
  local is_record = type(value) == 'string' and #value >= 10 and string.byte(value, 1) >= 0x80
  local found = value and is_record and string.sub(value, 1, 9) or ''
  deleted[index] = value and found == ARGV[index] and redis.call('DEL', key) or 0
end
return deleted
