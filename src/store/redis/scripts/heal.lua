-- Gives KEYS[1] ARGV[1] ms to live if it would stay for ever and may be ours: a claim of any version,
-- or a short value such as older consumers write. A longer value is somebody's data.
-- Returns 0 nothing to do, 1 done, 2 left.
local key = KEYS[1]
if redis.call('PTTL', key) ~= -1 then return 0 end
local value = redis.pcall('GET', key)
if type(value) ~= 'string' or #value > 64 then return 2 end
return redis.call('PEXPIRE', key, ARGV[1])
