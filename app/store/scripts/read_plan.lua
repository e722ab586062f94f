-- What the leader published last.
-- KEYS: plan.
-- Returns its epoch, its seq and the plan, or nothing.
if redis.call('TYPE', KEYS[1])['ok'] ~= 'hash' then return {} end
local present = redis.call('HMGET', KEYS[1], 'epoch', 'seq', 'plan')
if not (present[1] and present[2] and present[3]) then return {} end
return present
