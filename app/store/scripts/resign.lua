-- Lead no longer: the next who asks may at once.
-- KEYS: leader. ARGV: who led, its epoch.
-- Returns 1, or 0 when somebody else leads.
if redis.call('TYPE', KEYS[1])['ok'] ~= 'hash' then return 0 end
local held = redis.call('HMGET', KEYS[1], 'name', 'epoch')
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'until', '0')
return 1
