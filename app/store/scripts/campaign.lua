-- Lead, go on leading, or learn who does.
-- KEYS: leader. ARGV: who asks, the highest epoch that it knows of, life of the lease in ms.
-- Returns the leader's name and epoch.
-- A lease whose epoch is below what anybody knows of is void: the store lost what came after it. A new epoch is the
-- time at least: after such a loss one that knows of nothing must not begin again at numbers that others have seen.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local name, known, life = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local kind = redis.call('TYPE', KEYS[1])['ok']
if kind ~= 'none' and kind ~= 'hash' then redis.call('DEL', KEYS[1]) end
local held = redis.call('HMGET', KEYS[1], 'name', 'epoch', 'until')
local epoch, deadline = tonumber(held[2] or ''), tonumber(held[3] or '')
if not epoch or epoch < 0 or epoch ~= math.floor(epoch) or epoch >= 9007199254740991 then epoch = 0 end

local holds = held[1] and deadline and deadline > now and deadline <= now + life and epoch > 0 and epoch >= known
if holds and held[1] ~= name then return { held[1], string.format('%.0f', epoch) } end
if not holds then epoch = math.max(epoch + 1, known + 1, now) end
redis.call('HSET', KEYS[1], 'name', name, 'epoch', string.format('%.0f', epoch), 'until', string.format('%.0f', now + life))
return { name, string.format('%.0f', epoch) }
