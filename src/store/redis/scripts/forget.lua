-- Deletes each key under which the settled claim stands that the caller found. ARGV, for each key:
-- the first nine bytes of its record, or nothing for a foreign value.
-- Returns, for each key, whether it was deleted.

-- As domain::claim::Standing::decode: of this version and of just the announced length, or newer.
local function is_record(value)
  if type(value) ~= 'string' or #value < 10 then return false end
  local head, flags = string.byte(value, 1), string.byte(value, 10)
  if head % 16 < 1 or head % 16 > 3 or head < 0x80 then return false end
  local function field(flag, bytes) return math.floor(flags / flag) % 2 * bytes end
  return head >= 0x90
    or (flags < 16 and #value == 10 + field(1, 8) + field(2, 8) + field(4, 16) + field(8, 8))
end

local deleted = {}
for index, key in ipairs(KEYS) do
  local value = redis.pcall('GET', key)
  local found = is_record(value) and string.sub(value, 1, 9) or ''
  deleted[index] = value and found == ARGV[index] and redis.call('DEL', key) or 0
end
return deleted
