-- Decides plans in their order. All keys of all plans come in KEYS, each plan's primary first.
-- ARGV: hold in ms; the time guard as two 32-bit halves; what to adopt (0 nothing, 1 what is
-- unsettled, 2 also what is confirmed); then for each plan its record and its number of neighbours.
-- A reply for each plan: 256 claimed, 0..255 adopted as this attempt, -1 another type stands there,
-- a text: the error that the write met, or the values found under all of its keys.
-- Times are compared as 32-bit halves: Lua's numbers are doubles, and its `<` on strings follows
-- the server's locale.
local hold, guard_hi, guard_lo = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local adopt = tonumber(ARGV[4])

local function nearer_than_guard(a, b)
  local a_hi, a_lo = struct.unpack('>I4I4', a, 11)
  local b_hi, b_lo = struct.unpack('>I4I4', b, 11)
  if a_hi < b_hi or (a_hi == b_hi and a_lo < b_lo) then
    a_hi, a_lo, b_hi, b_lo = b_hi, b_lo, a_hi, a_lo
  end
  local hi, lo = a_hi - b_hi, a_lo - b_lo
  if lo < 0 then hi, lo = hi - 1, lo + 4294967296 end
  return hi < guard_hi or (hi == guard_hi and lo < guard_lo)
end

-- A record of this version with an event time.
local function has_time(value)
  local head, flags = string.byte(value, 1), string.byte(value, 10)
  return #value >= 18 and head >= 0x81 and head <= 0x83 and flags % 2 == 1 and flags < 8
end

local function decide(first, neighbours, record)
  local values = redis.call('MGET', unpack(KEYS, first, first + neighbours))
  local mine = values[1]
  if mine and adopt > 0 and #mine >= 10 and string.sub(mine, 2, 8) == string.sub(record, 2, 8) then
    local head = string.byte(mine, 1)
    if head == 0x81 or head == 0x82 or (head == 0x83 and adopt == 2) then
      local attempt = (string.byte(mine, 9) + 1) % 256
      local taken = string.sub(record, 1, 8) .. string.char(attempt) .. string.sub(record, 10)
      local set = redis.pcall('SET', KEYS[first], taken, 'PX', hold)
      return set.err or attempt
    end
  end
  local near = mine
  for key = 2, neighbours + 1 do
    local value = values[key]
    near = near or (value and has_time(value) and nearer_than_guard(record, value))
  end
  if near then return values end
  local set = redis.pcall('SET', KEYS[first], record, 'NX', 'PX', hold)
  if not set then return -1 end
  return set.err or 256
end

local replies, first, arg = {}, 1, 5
while ARGV[arg] do
  local neighbours = tonumber(ARGV[arg + 1])
  replies[#replies + 1] = decide(first, neighbours, ARGV[arg])
  first, arg = first + neighbours + 1, arg + 2
end
return replies
