-- All live registrations and removals, and who drains.
-- KEYS: workers, removed, draining.
-- Returns {id, value, id, value, ...}, {removed id, ...}, {id, word, ...}, count of keys that are not of our type.
-- Cleaning is pcall'ed: a server that refuses writes still answers reads.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local live, foreign = {}, 0

local kind = redis.call('TYPE', KEYS[1])['ok']
if kind == 'hash' then
  local entries = redis.call('HGETALL', KEYS[1])
  for place = 1, #entries, 2 do
    local deadline = tonumber(string.match(entries[place + 1], '^{"until":(%d+),'))
    if deadline and deadline > 0 and deadline <= now then
      redis.pcall('HDEL', KEYS[1], entries[place])
    else
      live[#live + 1] = entries[place]
      live[#live + 1] = entries[place + 1]
    end
  end
elseif kind ~= 'none' then
  foreign = foreign + 1
end

local removed = {}
kind = redis.call('TYPE', KEYS[2])['ok']
if kind == 'zset' then
  redis.pcall('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
  removed = redis.call('ZRANGE', KEYS[2], '(' .. string.format('%.0f', now), '+inf', 'BYSCORE')
elseif kind ~= 'none' then
  foreign = foreign + 1
end

local draining = {}
kind = redis.call('TYPE', KEYS[3])['ok']
if kind == 'hash' then
  draining = redis.call('HGETALL', KEYS[3])
elseif kind ~= 'none' then
  foreign = foreign + 1
end

return { live, removed, draining, foreign }
