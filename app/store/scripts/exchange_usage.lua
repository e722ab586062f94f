-- Write the usage of one gateway and read that of all live ones.
-- KEYS: usage. ARGV: gateway id, life in ms, usage as JSON.
-- Returns {gateway id, value, ...}.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local life = tonumber(ARGV[2])

local kind = redis.call('TYPE', KEYS[1])['ok']
if kind ~= 'none' and kind ~= 'hash' then redis.call('DEL', KEYS[1]) end
redis.call('HSET', KEYS[1], ARGV[1], string.format('{"until":%.0f,"usage":', now + life) .. ARGV[3] .. '}')
redis.call('PEXPIRE', KEYS[1], life)

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
return live
