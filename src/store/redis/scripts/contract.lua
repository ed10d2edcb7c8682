-- Puts up the contract line in ARGV[1] if none stands, or if ARGV[3] is 1; extends its life to
-- ARGV[2] ms if it is the same. Returns the line that stands.
local line = redis.call('GET', KEYS[1])
if not line or ARGV[3] == '1' then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return ARGV[1]
end
if line == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return line
