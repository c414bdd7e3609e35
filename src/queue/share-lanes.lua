--[[
  One heartbeat of a worker, and what follows from it: which lanes are its own now. Every worker computes the same even
  shares; two shares differ by one lane at most. It is atomic, so that no lane is given twice, and returns early while
  nothing has changed.

  KEYS[1]  workers: sorted set of their ids, with `-` in front of one that leaves, by the millisecond at which each expires
  KEYS[2]  lanes: hash of the id that each lane belongs to, with `-` in front while it is to be given back
  KEYS[3]  later: hash of lanes that wait for workers of a later release, as `<version> <millisecond of its end>`
  KEYS[4]  version: grows with every change
  ARGV[1]  id of the worker
  ARGV[2]  milliseconds after which it expires
  ARGV[3]  number of lanes
  ARGV[4]  version that it knows
  ARGV[5]  latest version of envelopes that it reads
  ARGV[6]  `leaves`: it is to have no lane any more
  ARGV[7]  lanes that it has open or is closing, with commas before, between and behind

  Returns the version and then the lanes of the worker, with `-` in front of those that somebody who is gone had a moment
  ago; nothing: what it knows still holds. While a lane has no living owner the version is empty, so that the worker's next
  heartbeat shares the lanes again instead of returning early
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
-- Each write waits for the disk: most heartbeats make none.
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

-- Lanes that wait for a later release count for nobody's share while they do.
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

-- One that the worker does not have open, since it never heard of it, is nothing to wait for.
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
      -- Its turn is not counted.
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
      -- What others have too much of they give by themselves.
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
  -- One that has been away, or whose Redis has forgotten all, first asks for no more than it had: so do the others.
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
