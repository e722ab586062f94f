-- The loads of all live processes.
-- KEYS: processes.
-- Returns the server's clock in ms, {process id, value, ...}, count of keys that are not of our type.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local live = {}

local kind = redis.call('TYPE', KEYS[1])['ok']
if kind == 'hash' then
  local entries = redis.call('HGETALL', KEYS[1])
  for place = 1, #entries, 2 do
    local deadline = tonumber(string.match(entries[place + 1], '^{"until":(%d+),'))
    if deadline and deadline <= now then
      redis.pcall('HDEL', KEYS[1], entries[place])
    else
      live[#live + 1] = entries[place]
      live[#live + 1] = entries[place + 1]
    end
  end
end

return { string.format('%.0f', now), live, (kind == 'hash' or kind == 'none') and 0 or 1 }
