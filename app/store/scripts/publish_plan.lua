-- Publish what the leader decided, if it still leads and nothing later stands there.
-- KEYS: leader, plan. ARGV: who publishes, its epoch, seq, plan.
-- Returns 1, or 0 when it is refused.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local name, epoch, seq = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

if redis.call('TYPE', KEYS[1])['ok'] ~= 'hash' then return 0 end
local held = redis.call('HMGET', KEYS[1], 'name', 'epoch', 'until')
local deadline = tonumber(held[3] or '')
if held[1] ~= name or held[2] ~= ARGV[2] or not deadline or deadline <= now then return 0 end

local kind = redis.call('TYPE', KEYS[2])['ok']
if kind ~= 'none' and kind ~= 'hash' then redis.call('DEL', KEYS[2]) end
local present = redis.call('HMGET', KEYS[2], 'epoch', 'seq')
local there, number = tonumber(present[1] or '') or 0, tonumber(present[2] or '') or 0
if there > epoch or (there == epoch and number >= seq) then return 0 end
redis.call('HSET', KEYS[2], 'epoch', ARGV[2], 'seq', ARGV[3], 'plan', ARGV[4])
return 1
