-- Settles claims: the table of domain::claim::settle. ARGV: the action; the nonces, eight bytes
-- each, of which seven must match; the hold in ms, one for all keys or one for each.
-- No key comes twice, since all are read before one is written.
-- A reply for each key: 0 another's or foreign, 1 applied, 2 already applied, 3 already confirmed,
-- 4 nothing stands there, or a text: the error that the command met.
local keys, arguments = KEYS, ARGV
local pcall, sub, byte, char, type = redis.pcall, string.sub, string.byte, string.char, type
local action, nonces = arguments[1], arguments[2]

local function settle(key, value, nonce, hold)
  -- MGET tells nothing of a value of another type.
  value = value or pcall('GET', key)
  if type(value) == 'table' then return value.err end
  if not value then return 4 end
  if #value < 10 or sub(value, 2, 8) ~= nonce then return 0 end
  local head = byte(value, 1)
  local state = head % 16
  if head < 0x80 or state < 1 or state > 3 then return 0 end
  local done
  if action == 'confirm' then
    if state == 3 then return 2 end
    -- PEXPIRE first: a full server permits it, and after it the other writes of the script. And
    -- KEEPTTL, since PX would take the key out of the table of expiries and put it back.
    done = pcall('PEXPIRE', key, hold)
    if done == 1 then
      done = pcall('SET', key, char(head - state + 3) .. sub(value, 2), 'KEEPTTL')
    end
  elseif state == 3 then
    return 3
  elseif action == 'release' then
    done = pcall('DEL', key)
  elseif state == 2 then
    return 2
  else
    done = pcall('PEXPIRE', key, hold)
  end
  if type(done) == 'table' and done.err then return done.err end
  return 1
end

local replies, values = {}, pcall('MGET', unpack(keys))
for index, key in ipairs(keys) do
  local nonce = sub(nonces, 8 * index - 7, 8 * index - 1)
  replies[index] = settle(key, values[index], nonce, arguments[index + 2] or arguments[3])
end
return replies
