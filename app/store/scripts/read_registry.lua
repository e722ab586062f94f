-- All live registrations and removals, and what operators want of workers.
-- KEYS: workers, removed, orders.
-- Returns the server's clock in ms, {id, value, id, value, ...}, {removed id, ...}, {id, order, ...}, count of keys that
-- are not of our type.
-- Cleaning is pcall'ed: a server that refuses writes still answers reads.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local foreign = 0

-- Fields and values of a hash whose deadline is not over; 0 is none.
local function alive(key)
  local live = {}
  local kind = redis.call('TYPE', key)['ok']
  if kind == 'hash' then
    local entries = redis.call('HGETALL', key)
    for place = 1, #entries, 2 do
      local deadline = tonumber(string.match(entries[place + 1], '^{"until":(%d+),'))
      if deadline and deadline > 0 and deadline <= now then
        redis.pcall('HDEL', key, entries[place])
      else
        live[#live + 1] = entries[place]
        live[#live + 1] = entries[place + 1]
      end
    end
  elseif kind ~= 'none' then
    foreign = foreign + 1
  end
  return live
end

local removed = {}
local kind = redis.call('TYPE', KEYS[2])['ok']
if kind == 'zset' then
  redis.pcall('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
  removed = redis.call('ZRANGE', KEYS[2], '(' .. string.format('%.0f', now), '+inf', 'BYSCORE')
elseif kind ~= 'none' then
  foreign = foreign + 1
end

local workers, orders = alive(KEYS[1]), alive(KEYS[3])
return { string.format('%.0f', now), workers, removed, orders, foreign }
