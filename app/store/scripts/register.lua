-- Write or renew one registration.
-- KEYS: workers, removed. ARGV: id, source, url, lease in ms (0: none), registration as JSON.
-- Returns 'registered', 'renewed', 'removed' (refused: an operator removed this configured worker) or 'kept' (a
-- configured worker that an operator registered too: the operator's entry stands).
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local id, source, url, lease, registration = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]

-- A key of another type under our name is garbage: nothing of ours could be read from it.
local kind = redis.call('TYPE', KEYS[1])['ok']
if kind ~= 'none' and kind ~= 'hash' then redis.call('DEL', KEYS[1]) end
kind = redis.call('TYPE', KEYS[2])['ok']
if kind ~= 'none' and kind ~= 'zset' then redis.call('DEL', KEYS[2]) end

local deadline = '{"until":' .. (lease > 0 and string.format('%.0f', now + lease) or '0') .. ','

if source == 'config' then
  local forgotten = tonumber(redis.call('ZSCORE', KEYS[2], id) or '0')
  if forgotten > now then return 'removed' end
  local present = redis.call('HGET', KEYS[1], id)
  local readable, entry = pcall(cjson.decode, present or '')
  if readable and type(entry) == 'table' and type(entry['registration']) == 'table' then
    local until_ms = tonumber(entry['until'])
    if until_ms and (until_ms == 0 or until_ms > now) then
      if entry['registration']['source'] == 'admin' then return 'kept' end
      -- Each process makes up an incarnation. The first one stands while the worker is the same, or two processes
      -- that both have it in their configuration would restart it for everybody at every renewal.
      if entry['registration']['url'] == url then
        redis.call('HSET', KEYS[1], id, (string.gsub(present, '^{"until":%d+,', deadline)))
        return 'renewed'
      end
    end
  end
else
  redis.call('ZREM', KEYS[2], id)
end

redis.call('HSET', KEYS[1], id, deadline .. '"registration":' .. registration .. '}')
return 'registered'
