--[[
  Takes up to `wanted` tokens from each of several buckets, in one atomic step on the server's clock.

  KEYS[i]  a bucket: hash of tokens (float) and at (microseconds)
  ARGV     for each bucket in turn:
             capacity, tokens; a new bucket is full
             window, seconds: the time in which an empty bucket fills
             wanted, tokens
           and 'clock' at the end, if the buckets are not refilled evenly but at the start of each window of the clock

  Returns for each bucket in turn: granted, left (whole tokens), milliseconds until the bucket is full (with 'clock', until the window ends), milliseconds until one token is available, server time in milliseconds
]]
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local on_clock = ARGV[#KEYS * 3 + 1] == 'clock'
local answers = {}

for index, key in ipairs(KEYS) do
  local capacity = tonumber(ARGV[index * 3 - 2])
  local window = tonumber(ARGV[index * 3 - 1])
  local wanted = tonumber(ARGV[index * 3])
  local span = window * 1000000
  local per_microsecond = capacity / span

  local stored = redis.call('HMGET', key, 'tokens', 'at')
  local tokens = tonumber(stored[1]) or capacity
  local at = tonumber(stored[2]) or now
  -- A clock that was set back must not drain the bucket.
  local elapsed = math.max(0, now - at)
  local refilled = elapsed * per_microsecond
  if on_clock then refilled = math.floor(at / span) < math.floor(now / span) and capacity or 0 end
  tokens = math.min(capacity, tokens + refilled)

  local granted = math.min(wanted, math.floor(tokens))
  tokens = tokens - granted
  redis.call('HSET', key, 'tokens', string.format('%.6f', tokens), 'at', string.format('%.0f', now))
  redis.call('PEXPIRE', key, window * 1000 + 1000)

  local until_full = math.ceil((capacity - tokens) / per_microsecond / 1000)
  local until_one = tokens >= 1 and 0 or math.ceil((1 - tokens) / per_microsecond / 1000)
  if on_clock then
    until_full = math.ceil((span - now % span) / 1000)
    until_one = tokens >= 1 and 0 or until_full
  end
  for _, answer in ipairs({ granted, math.floor(tokens), until_full, until_one, math.floor(now / 1000) }) do
    answers[#answers + 1] = answer
  end
end

return answers
