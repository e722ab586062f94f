-- Write the load of one process, stamped with the server's clock.
-- KEYS: processes. ARGV: process id, life in ms, load as JSON.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local life = tonumber(ARGV[2])

local kind = redis.call('TYPE', KEYS[1])['ok']
if kind ~= 'none' and kind ~= 'hash' then redis.call('DEL', KEYS[1]) end
local stamp = string.format('{"until":%.0f,"at":%.0f,"load":', now + life, now)
redis.call('HSET', KEYS[1], ARGV[1], stamp .. ARGV[3] .. '}')
redis.call('PEXPIRE', KEYS[1], life)
return 1
