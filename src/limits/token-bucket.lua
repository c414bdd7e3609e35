--[[
  Takes up to `wanted` tokens from a bucket, in one atomic step on the server's clock.

  KEYS[1]  the bucket: hash of tokens (float) and at (microseconds)
  ARGV[1]  capacity, tokens; the bucket is full at first
  ARGV[2]  window, seconds: the time in which an empty bucket fills
  ARGV[3]  wanted, tokens

  Returns {granted, left (whole tokens), milliseconds until the bucket is full, milliseconds until one token is there, server time in milliseconds}
]]
local capacity = tonumber(ARGV[1])
local per_microsecond = capacity / (tonumber(ARGV[2]) * 1000000)
local wanted = tonumber(ARGV[3])

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

local stored = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = tonumber(stored[1]) or capacity
local at = tonumber(stored[2]) or now
-- A clock that was set back must not drain the bucket.
local elapsed = math.max(0, now - at)
tokens = math.min(capacity, tokens + elapsed * per_microsecond)

local granted = math.min(wanted, math.floor(tokens))
tokens = tokens - granted
redis.call('HSET', KEYS[1], 'tokens', string.format('%.6f', tokens), 'at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], tonumber(ARGV[2]) * 1000 + 1000)

local until_full = math.ceil((capacity - tokens) / per_microsecond / 1000)
local until_one = tokens >= 1 and 0 or math.ceil((1 - tokens) / per_microsecond / 1000)
return { granted, math.floor(tokens), until_full, until_one, math.floor(now / 1000) }
