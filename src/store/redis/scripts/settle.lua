-- Settles claims: the table of domain::claim::settle. ARGV: the action; then for each key the
-- nonce, of which seven bytes must match, and the hold in ms.
-- A reply for each key: 0 another's or foreign, 1 applied, 2 already applied, 3 already confirmed,
-- 4 nothing stands there, or a text: the error that the command met.
local action = ARGV[1]

local function settle(key, nonce, hold)
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then return value.err end
  if not value then return 4 end
  if #value < 10 or string.sub(value, 2, 8) ~= string.sub(nonce, 1, 7) then return 0 end
  local head = string.byte(value, 1)
  local state = head % 16
  if head < 0x80 or state < 1 or state > 3 then return 0 end
  local done
  if action == 'confirm' then
    if state == 3 then return 2 end
    local confirmed = string.char(head - state + 3) .. string.sub(value, 2)
    done = redis.pcall('SET', key, confirmed, 'PX', hold)
  elseif state == 3 then
    return 3
  elseif action == 'release' then
    done = redis.pcall('DEL', key)
  elseif state == 2 then
    return 2
  else
    done = redis.pcall('PEXPIRE', key, hold)
  end
  if type(done) == 'table' and done.err then return done.err end
  return 1
end

local replies = {}
for index, key in ipairs(KEYS) do
  replies[index] = settle(key, ARGV[2 * index], ARGV[2 * index + 1])
end
return replies
