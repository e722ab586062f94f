-- Remove one incarnation of a worker and leave a mark, so that no configuration brings it back.
-- KEYS: workers, removed, orders. ARGV: id, incarnation, life of the mark in ms.
-- Returns 1, or 0 when that incarnation is not what is registered now.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local id, incarnation, life = ARGV[1], ARGV[2], tonumber(ARGV[3])

if redis.call('TYPE', KEYS[1])['ok'] ~= 'hash' then return 0 end
local readable, entry = pcall(cjson.decode, redis.call('HGET', KEYS[1], id) or '')
if not readable or type(entry) ~= 'table' or type(entry['registration']) ~= 'table' then return 0 end
local deadline = tonumber(entry['until'])
if not deadline or (deadline > 0 and deadline <= now) then return 0 end
if entry['registration']['incarnation'] ~= incarnation then return 0 end

local kind = redis.call('TYPE', KEYS[2])['ok']
if kind ~= 'none' and kind ~= 'zset' then redis.call('DEL', KEYS[2]) end
redis.call('HDEL', KEYS[1], id)
redis.pcall('HDEL', KEYS[3], id)
redis.call('ZADD', KEYS[2], string.format('%.0f', now + life), id)
return 1
