-- Decides plans in their order. All keys of all plans come in KEYS, each plan's primary first.
-- ARGV: hold in ms; how long a session remembers what it has seen, in ms; the time guard as two
-- 32-bit halves; the space guard in metres; 1 to adopt what an earlier attempt left; 1 if there is
-- one plan, its primary alone is in KEYS and the other keys stand at the end; then for each plan
-- three:
--   its record, whose session flag says that the plan belongs to a session;
--   a letter for each neighbour: t in another bucket, c in another cell, b in both;
--   values known not to be near: for each the neighbour's number, its length and its bytes.
-- A reply for each plan: 256 claimed, 0..255 adopted as this attempt, -1 another type stands there,
-- a text: the error that the write met, or the values found under all of its keys, because one of
-- them is near. Distances are rounded up a little, since another machine's sine may differ in the
-- last place: the caller measures again, and comes back with what is not near after all.
-- Times are compared as 32-bit halves: Lua's numbers are doubles, and its `<` on strings follows
-- the server's locale.
local hold, seen_hold = ARGV[1], ARGV[2]
local guard_hi, guard_lo = tonumber(ARGV[3]), tonumber(ARGV[4])
local guard_m = tonumber(ARGV[5]) + 1e-6
local adopts = ARGV[6] == '1'
local apart = ARGV[7] == '1'
local last_arg = apart and 10 or #ARGV

-- Is the time at one place less than the guard from the time at another?
local function nearer_than_guard(a, a_at, b, b_at)
  local a_hi, a_lo = struct.unpack('>I4I4', a, a_at)
  local b_hi, b_lo = struct.unpack('>I4I4', b, b_at)
  if a_hi < b_hi or (a_hi == b_hi and a_lo < b_lo) then
    a_hi, a_lo, b_hi, b_lo = b_hi, b_lo, a_hi, a_lo
  end
  local hi, lo = a_hi - b_hi, a_lo - b_lo
  if lo < 0 then hi, lo = hi - 1, lo + 4294967296 end
  return hi < guard_hi or (hi == guard_hi and lo < guard_lo)
end

-- A record of this version, of just the length that its flags announce.
local function is_record(value)
  if #value < 10 then return false end
  local head, flags = string.byte(value, 1), string.byte(value, 10)
  local function field(flag, bytes) return math.floor(flags / flag) % 2 * bytes end
  return head >= 0x81 and head <= 0x83 and flags < 16
    and #value == 10 + field(1, 8) + field(2, 8) + field(4, 16) + field(8, 8)
end

local function is_session(record) return #record == 26 and string.byte(record, 10) == 9 end

-- A record of this version whose time, or either end of what its session saw, is near.
local function near_in_time(record, value)
  if string.byte(value, 10) % 2 == 0 then return false end
  return nearer_than_guard(record, 11, value, 11)
    or (is_session(value) and nearer_than_guard(record, 11, value, 19))
end

-- The smaller or larger of the times at the same place of two records.
local function outer(a, b, at, larger)
  local a_hi, a_lo = struct.unpack('>I4I4', a, at)
  local b_hi, b_lo = struct.unpack('>I4I4', b, at)
  local a_is_larger = a_hi > b_hi or (a_hi == b_hi and a_lo > b_lo)
  if a_is_larger == larger then return string.sub(a, at, at + 7) end
  return string.sub(b, at, at + 7)
end

-- What a session saw extends it: see domain::claim::seen. Returns the error that the write met.
local function see(key, mine, record)
  local seen
  if not mine then
    seen = string.char(0x83) .. string.rep('\0', 8) .. string.sub(record, 10)
  elseif is_record(mine) and is_session(mine) and string.byte(mine, 1) ~= 0x81 then
    seen = string.sub(mine, 1, 10) .. outer(mine, record, 11, false) .. outer(mine, record, 19, true)
  else
    return nil
  end
  local set = redis.pcall('SET', key, seen, 'PX', seen_hold)
  return set.err
end

-- Latitude and longitude of a record in radians, if it has them: its last sixteen bytes.
local function position(record)
  if math.floor(string.byte(record, 10) / 4) % 2 == 0 then return nil end
  local lat, lon = struct.unpack('>dd', record, #record - 15)
  return math.rad(lat), math.rad(lon)
end

-- domain::place::Position::distance_m, less than the guard.
local function near_in_space(record, value)
  local lat_a, lon_a = position(record)
  local lat_b, lon_b = position(value)
  if not lat_a or not lat_b then return false end
  local h = math.sin((lat_b - lat_a) / 2) ^ 2
    + math.cos(lat_a) * math.cos(lat_b) * math.sin((lon_b - lon_a) / 2) ^ 2
  return 2 * 6371008.8 * math.asin(math.min(1, math.sqrt(h))) < guard_m
end

local function known_not_near(known, neighbour, value)
  local at = 1
  while at < #known do
    local length = string.byte(known, at + 1)
    if string.byte(known, at) == neighbour then
      return string.sub(known, at + 2, at + 1 + length) == value
    end
    at = at + 2 + length
  end
  return false
end

local function read(first, neighbours)
  if not apart then return redis.call('MGET', unpack(KEYS, first, first + neighbours)) end
  local values = { redis.call('GET', KEYS[first]) }
  for neighbour = 1, neighbours do
    values[neighbour + 1] = redis.call('GET', ARGV[last_arg + neighbour])
  end
  return values
end

local function decide(first, record, shape, known)
  local key = KEYS[first]
  local values = read(first, #shape)
  local mine = values[1]
  if mine and adopts and is_record(mine) and string.sub(mine, 2, 8) == string.sub(record, 2, 8) then
    local state = string.byte(record, 1)
    if string.byte(mine, 1) ~= 0x83 or state == 0x83 then
      local attempt = string.byte(record, 9)
      if attempt == string.byte(mine, 9) then attempt = (attempt + 1) % 256 end
      local taken = string.char(state) .. string.sub(mine, 2, 8) .. string.char(attempt) .. string.sub(mine, 10)
      local set = redis.pcall('SET', key, taken, 'PX', hold)
      return set.err or attempt
    end
  end
  -- Whatever stands on the primary is near; what is foreign there counts as settled.
  local near = mine
  local settled = mine and not (#mine >= 10 and string.byte(mine, 1) >= 0x80 and string.byte(mine, 1) % 16 == 1)
  for neighbour = 1, #shape do
    local value, kind = values[neighbour + 1], string.sub(shape, neighbour, neighbour)
    if value and is_record(value) and (kind == 'c' or near_in_time(record, value))
      and (kind == 't' or (near_in_space(record, value) and not known_not_near(known, neighbour, value)))
    then
      near = true
      settled = settled or string.byte(value, 1) ~= 0x81
    end
  end
  if near then
    return settled and is_session(record) and see(key, mine, record) or values
  end
  local set = redis.pcall('SET', key, record, 'NX', 'PX', hold)
  if not set then return -1 end
  return set.err or 256
end

local replies, first = {}, 1
for arg = 8, last_arg, 3 do
  replies[#replies + 1] = decide(first, ARGV[arg], ARGV[arg + 1], ARGV[arg + 2])
  first = first + #ARGV[arg + 1] + 1
end
return replies
