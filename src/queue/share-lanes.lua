--[[
  Records the heartbeat of a worker and returns the lanes that it owns now. Every worker computes the same even shares,
  which differ by at most one lane. The script is atomic, so that a lane never has two owners, and returns early if the
  assignment has not changed.

  KEYS[1]  workers: sorted set of worker ids by the millisecond at which each expires; prefix `-` while it leaves
  KEYS[2]  lanes: hash of lane to owner id, with the prefix `-` while the owner must give the lane back
  KEYS[3]  later: hash of lanes that wait for workers of a later release, as `<version> <millisecond at which it ends>`
  KEYS[4]  version: grows with every change
  ARGV[1]  id of the worker
  ARGV[2]  milliseconds after which the worker expires
  ARGV[3]  number of lanes
  ARGV[4]  version of the worker's last answer
  ARGV[5]  latest version of envelopes that the worker reads
  ARGV[6]  `leaves` if the worker must give back all lanes
  ARGV[7]  lanes that the worker has open or is closing, with a comma before and after each

  Returns the version and then the worker's lanes. A lane just taken from a worker that no longer lives has the prefix
  `-`. An empty answer means that the last answer still holds. While a lane has no living owner, the version is
  empty, so that the worker's next heartbeat computes the shares again instead of returning early.
]]
local id, lease, lanes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local leaves = ARGV[6] == 'leaves'
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

local self = leaves and '-' .. id or id
local was_there = redis.call('ZSCORE', KEYS[1], self)
local version = redis.call('GET', KEYS[4])
local is_calm = was_there and version == ARGV[4]
  and redis.call('ZCOUNT', KEYS[1], '-inf', now) == 0
  and redis.call('EXISTS', KEYS[3]) == 0
-- A write waits for the disk, so most heartbeats do not write.
if is_calm and tonumber(was_there) - now > 0.7 * lease then return {} end
if leaves then redis.call('ZREM', KEYS[1], id) end
redis.call('ZADD', KEYS[1], now + lease, self)
if is_calm then return {} end

local changed = not was_there
if redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now) > 0 then changed = true end
local alive, counts, members = {}, {}, 0
for _, name in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  if string.sub(name, 1, 1) == '-' then
    alive[string.sub(name, 2)] = true
  else
    alive[name] = true
    counts[name] = 0
    members = members + 1
  end
end

-- While a lane waits for a later release, it does not count in any worker's share.
local later, shared = {}, lanes
local waits = redis.call('HGETALL', KEYS[3])
for at = 1, #waits, 2 do
  local needed, ends = string.match(waits[at + 1], '^(%d+) (%d+)$')
  if tonumber(ends) <= now or tonumber(waits[at]) >= lanes then
    redis.call('HDEL', KEYS[3], waits[at])
    changed = true
  else
    later[tonumber(waits[at])] = tonumber(needed)
    shared = shared - 1
  end
end

local owners, own, left_over, free, coming, left = {}, {}, {}, {}, 0, 0
local stored = redis.call('HGETALL', KEYS[2])
for at = 1, #stored, 2 do owners[tonumber(stored[at])] = stored[at + 1] end

local function is_open(lane) return string.find(ARGV[7], ',' .. lane .. ',', 1, true) end

local function set(lane, value)
  redis.call('HSET', KEYS[2], lane, value)
  changed = true
end

-- A lane that the worker has not opened (it did not receive the assignment) is free at once.
local function give(lane)
  if is_open(lane) then
    set(lane, '-' .. id)
  else
    redis.call('HDEL', KEYS[2], lane)
    changed = true
  end
end

local function take(lane)
  if owners[lane] then left_over[lane] = true end
  set(lane, id)
  own[lane] = true
end

for lane = 0, lanes - 1 do
  local owner = owners[lane]
  local closes = owner and string.sub(owner, 1, 1) == '-'
  local who = closes and string.sub(owner, 2) or owner
  if closes and who == id and not is_open(lane) then
    give(lane)
    owners[lane] = nil
    who = nil
  end
  if who and alive[who] then
    if who == id and not closes then
      if leaves then give(lane) else own[lane] = true end
    end
    if later[lane] then
      -- The lane waits for a later release and does not count.
    elseif closes or not counts[who] then
      coming = coming + 1
    else
      counts[who] = counts[who] + 1
    end
  elseif later[lane] then
    if not leaves and tonumber(ARGV[5]) >= later[lane] then take(lane) end
  else
    free[#free + 1] = lane
  end
end

if not leaves then
  local least, most = math.floor(shared / members), math.ceil(shared / members)
  local lacking = 0
  for name, count in pairs(counts) do
    if name ~= id then
      lacking = lacking + math.max(0, least - count)
      -- Workers with too many lanes give the surplus back at their next heartbeat.
      coming = coming + math.max(0, count - most)
    end
  end
  local mine = counts[id]
  left = #free
  local function try(lane)
    if mine < least or (mine < most and left > lacking) then
      take(lane)
      mine = mine + 1
      left = left - 1
    end
  end
  -- After an absence of the worker, or a loss of Redis, each worker first takes back only the lanes that it has open.
  for _, lane in ipairs(free) do if is_open(lane) then try(lane) end end
  if was_there or ARGV[7] == ',' then
    for _, lane in ipairs(free) do if not is_open(lane) then try(lane) end end
  end
  for lane = lanes - 1, 0, -1 do
    if mine <= least or (mine <= most and lacking <= left + coming) then break end
    if own[lane] and not later[lane] then
      give(lane)
      own[lane] = nil
      mine = mine - 1
      coming = coming + 1
    end
  end
end

if changed then version = tostring(redis.call('INCR', KEYS[4])) end
local answer = { left > 0 and '' or version }
if not leaves then
  for lane = 0, lanes - 1 do if own[lane] then answer[#answer + 1] = (left_over[lane] and '-' or '') .. lane end end
end
return answer
