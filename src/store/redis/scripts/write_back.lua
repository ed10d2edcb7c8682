-- Writes claims that were made in an outage: see domain::reconcile. ARGV, for each key: the record
-- as it is to stand there, and the hold in ms.
-- A reply for each key: 1 it stands there, or what the same holder has there says more; 0 another's
-- claim or a foreign value stands there and was left alone; or a text: the error that the command
-- met.

local function is_record(value)
  if #value < 10 then return false end
  local head, flags = string.byte(value, 1), string.byte(value, 10)
  local function field(flag, bytes) return math.floor(flags / flag) % 2 * bytes end
  return head >= 0x81 and head <= 0x83 and flags < 16
    and #value == 10 + field(1, 8) + field(2, 8) + field(4, 16) + field(8, 8)
end

local function is_session(record) return #record == 26 and string.byte(record, 10) == 9 end

-- The smaller or larger of the times at the same place of two records, as 32-bit halves.
local function outer(a, b, at, larger)
  local a_hi, a_lo = struct.unpack('>I4I4', a, at)
  local b_hi, b_lo = struct.unpack('>I4I4', b, at)
  local a_is_larger = a_hi > b_hi or (a_hi == b_hi and a_lo > b_lo)
  if a_is_larger == larger then return string.sub(a, at, at + 7) end
  return string.sub(b, at, at + 7)
end

local function put(key, record, hold)
  local set = redis.pcall('SET', key, record, 'PX', hold)
  return set.err or 1
end

local function write_back(key, ours, hold)
  local theirs = redis.pcall('GET', key)
  if type(theirs) == 'table' then
    return string.sub(theirs.err, 1, 9) == 'WRONGTYPE' and 0 or theirs.err
  end
  if not theirs then return put(key, ours, hold) end
  local only_seen = string.sub(ours, 2, 9) == string.rep('\0', 8)
  local head = string.byte(theirs, 1)
  local is_newer = #theirs >= 10 and head >= 0x90 and head % 16 >= 1 and head % 16 <= 3
  local is_ours = (is_record(theirs) or is_newer) and string.sub(theirs, 2, 8) == string.sub(ours, 2, 8)
  if is_record(theirs) then
    if is_session(theirs) and is_session(ours) and (is_ours or (only_seen and head ~= 0x81)) then
      local state = math.max(head, string.byte(ours, 1))
      local joined = is_ours and string.char(state) .. string.sub(ours, 2, 10) or string.sub(theirs, 1, 10)
      joined = joined .. outer(theirs, ours, 11, false) .. outer(theirs, ours, 19, true)
      return put(key, joined, math.max(redis.call('PTTL', key), tonumber(hold)))
    end
    if is_ours and head <= string.byte(ours, 1) then return put(key, ours, hold) end
  end
  return (is_ours or only_seen) and 1 or 0
end

local replies = {}
for index, key in ipairs(KEYS) do
  replies[index] = write_back(key, ARGV[2 * index - 1], ARGV[2 * index])
end
return replies
