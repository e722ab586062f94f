-- Note an operator's word about a worker: '1' it drains, '0' it takes requests.
-- KEYS: draining. ARGV: id, word.
local kind = redis.call('TYPE', KEYS[1])['ok']
if kind ~= 'none' and kind ~= 'hash' then redis.call('DEL', KEYS[1]) end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
