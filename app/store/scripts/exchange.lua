-- Write what one gateway says, stamped with the server's clock, and read what all live ones say.
-- KEYS: hash. ARGV: gateway id, life in ms (0: it says nothing), name of the member that holds it, JSON.
-- Returns the server's clock in ms, {gateway id, value, ...}.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local life = tonumber(ARGV[2])

local kind = redis.call('TYPE', KEYS[1])['ok']
if kind ~= 'none' and kind ~= 'hash' then redis.call('DEL', KEYS[1]) end
if life > 0 then
  local stamp = string.format('{"until":%.0f,"at":%.0f,"%s":', now + life, now, ARGV[3])
  redis.call('HSET', KEYS[1], ARGV[1], stamp .. ARGV[4] .. '}')
  if redis.call('PTTL', KEYS[1]) < life then redis.call('PEXPIRE', KEYS[1], life) end
else
  redis.call('HDEL', KEYS[1], ARGV[1])
end

local live = {}
local entries = redis.call('HGETALL', KEYS[1])
for place = 1, #entries, 2 do
  local deadline = tonumber(string.match(entries[place + 1], '^{"until":(%d+),'))
  if deadline and deadline <= now then
    redis.call('HDEL', KEYS[1], entries[place])
  else
    live[#live + 1] = entries[place]
    live[#live + 1] = entries[place + 1]
  end
end
return { string.format('%.0f', now), live }
