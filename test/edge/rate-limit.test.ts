import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ApiKey } from '../../src/edge/key-cache.ts';
import { type Allowance, createRateLimiter } from '../../src/edge/rate-limit.ts';
import { memoryTokenBuckets, redisTokenBuckets, type TokenBuckets } from '../../src/limits/token-buckets.ts';
import { Redis } from '../../src/queue/ioredis.ts';
import type { BucketName } from '../../src/schemas/limits.ts';
import { rulesOf } from '../../src/schemas/vendor-rules.ts';
import { startRedis, waitUntil } from '../setup/fixtures.ts';

const LIMITERS = 8;

let url: string;
const connections: Redis[] = [];
beforeAll(async () => {
  ({ url } = await startRedis());
});
afterAll(() => {
  for (const connection of connections) connection.disconnect();
});

function connectRedis(): Redis {
  const redis = new Redis(url);
  connections.push(redis);
  return redis;
}

/** Returns a key of a new workspace, whose buckets are full. */
function keyWith(requests: number, windowSeconds: number, bucket: BucketName = 'users.track'): ApiKey {
  return {
    workspaceId: crypto.randomUUID(),
    limits: { [bucket]: { requests, windowSeconds } },
  } as unknown as ApiKey;
}

const stores: [name: string, open: () => TokenBuckets[]][] = [
  [
    'Redis, shared by 8 edges',
    () => Array.from({ length: LIMITERS }, () => redisTokenBuckets(connectRedis())),
  ],
  ['memory, in one edge', () => [memoryTokenBuckets()]],
];

describe.each(stores)('token buckets in %s', (_, open) => {
  const limitersOf = () => open().map((store) => createRateLimiter(store));

  test('G5: concurrent requests never exceed the limit, however many processes ask', async () => {
    const limiters = limitersOf();
    const key = keyWith(100, 3600);
    const takes = Array.from({ length: 400 }, (_, index) =>
      limiters[index % limiters.length]!.take(key, 'users.track'),
    );
    const answers = await Promise.all(takes);
    expect(answers.filter(({ allowed }) => allowed)).toHaveLength(100);
  });

  test('G5: over time, nearly as many requests are allowed as the bucket held and gained', async () => {
    const limiters = limitersOf();
    const [requests, windowSeconds] = [200, 1];
    const key = keyWith(requests, windowSeconds);
    const started = performance.now();
    const end = started + 1500;
    let allowed = 0;
    await Promise.all(
      limiters.map(async (limiter) => {
        while (performance.now() < end) {
          const answers = await Promise.all(
            Array.from({ length: 8 }, () => limiter.take(key, 'users.track')),
          );
          allowed += answers.filter((answer) => answer.allowed).length;
          await new Promise(setImmediate);
        }
      }),
    );
    const seconds = (performance.now() - started) / 1000;
    const flowed = (requests / windowSeconds) * seconds;
    expect(allowed).toBeLessThanOrEqual(requests + flowed + 1);
    // A busy machine sometimes asks too late, when the bucket has been full for a while.
    expect(allowed).toBeGreaterThan(0.7 * (requests + flowed));
  });

  test('no request is allowed before Retry-After, and one is allowed after it', async () => {
    const [limiter] = limitersOf() as [ReturnType<typeof createRateLimiter>];
    const key = keyWith(2, 4);
    const take = () => limiter.take(key, 'users.track');
    await Promise.all([take(), take()]);
    const refused = await take();
    expect(refused).toMatchObject({ allowed: false, limit: 2, remaining: 0 });
    // One token in two seconds.
    expect(refused.retryAfter).toBe(2);
    const from = performance.now();
    await waitUntil(async () => (await take()).allowed, { what: 'the next token', deadline: 10_000 });
    const waited = (performance.now() - from) / 1000;
    expect(waited).toBeGreaterThan(refused.retryAfter - 1);
    expect(waited).toBeLessThan(refused.retryAfter + 3);
  });

  test('the headers count down, and contain the time when the whole limit is free again', async () => {
    const [limiter] = limitersOf() as [ReturnType<typeof createRateLimiter>];
    const key = keyWith(5, 60);
    const answers: Allowance[] = [];
    for (let index = 0; index < 6; index++) answers.push(await limiter.take(key, 'users.track'));
    expect(answers.map(({ remaining }) => remaining)).toEqual([4, 3, 2, 1, 0, 0]);
    expect(answers.map(({ allowed }) => allowed)).toEqual([true, true, true, true, true, false]);
    const inAMinute = Date.now() / 1000 + 60;
    expect(answers[4]!.reset).toBeGreaterThan(inAMinute - 2);
    expect(answers[4]!.reset).toBeLessThan(inAMinute + 2);
  });

  test('on a 429, X-RateLimit-Reset and Retry-After name the same time', async () => {
    const [limiter] = limitersOf() as [ReturnType<typeof createRateLimiter>];
    // A whole bucket takes an hour, one token 36 s.
    const key = keyWith(100, 3600);
    const responses = Array.from({ length: 101 }, () => limiter.take(key, 'users.track'));
    const answers = await Promise.all(responses);
    expect(answers[99]!.allowed).toBe(true);
    expect(answers[99]!.reset - Date.now() / 1000).toBeGreaterThan(3500);
    for (const refused of [answers[100]!, await limiter.take(key, 'users.track')]) {
      expect(refused.allowed).toBe(false);
      expect(refused.retryAfter).toBeGreaterThan(25);
      const away = refused.reset - Date.now() / 1000;
      // Rounded up to a second, so that a client that waits for it does not retry too early.
      expect(away).toBeGreaterThan(refused.retryAfter - 10);
      expect(away).toBeLessThanOrEqual(refused.retryAfter + 1);
    }
  });

  test('a bucket belongs to one workspace and one name', async () => {
    const [limiter] = limitersOf() as [ReturnType<typeof createRateLimiter>];
    const limits = { requests: 1, windowSeconds: 3600 };
    const key = {
      ...keyWith(1, 3600),
      limits: { 'users.track': limits, default: limits },
    } as unknown as ApiKey;
    expect((await limiter.take(key, 'users.track')).allowed).toBe(true);
    expect((await limiter.take(key, 'users.track')).allowed).toBe(false);
    expect((await limiter.take(key, 'default')).allowed).toBe(true);
    expect((await limiter.take({ ...key, workspaceId: crypto.randomUUID() }, 'users.track')).allowed).toBe(
      true,
    );
  });
});

describe.each<[string, () => TokenBuckets]>([
  ['Redis', () => redisTokenBuckets(connectRedis(), { refill: 'clock' })],
  ['memory', () => memoryTokenBuckets(Date.now, new Map(), 'clock')],
])('windows of the clock in %s', (_, open) => {
  const windowSeconds = 2;
  const size = { requests: 10, windowSeconds };

  test('allow the whole limit at the start of a window, and then no request until the next one', async () => {
    const store = open();
    const name = crypto.randomUUID();
    let last = await store.take(name, size, 10);
    const windowOf = ({ now }: { now: number }) => Math.floor(now / (windowSeconds * 1000));
    for (let filled = 0; filled < 2; ) {
      const taken = await store.take(name, size, 10);
      const isNew = windowOf(taken) > windowOf(last);
      expect(taken.granted).toBe(isNew ? 10 : 0);
      expect((taken.now + taken.untilFull) % (windowSeconds * 1000)).toBeLessThanOrEqual(1);
      expect(taken.untilOne).toBe(taken.untilFull);
      if (isNew) filled++;
      last = taken;
      await sleep(20);
    }
  });

  test('return the end of the window as reset, also for a refused request', async () => {
    const limiter = createRateLimiter(open(), rulesOf.current);
    const key = keyWith(1, 3600);
    const answers = [await limiter.take(key, 'users.track'), await limiter.take(key, 'users.track')];
    expect(answers.map(({ allowed }) => allowed)).toEqual([true, false]);
    const [first, second] = answers.map(({ reset }) => reset);
    expect(first! % 3600).toBe(0);
    expect(second).toBe(first);
  });
});

test('the clock of Redis decides, not the clock of web', async () => {
  const redis = connectRedis();
  const buckets = redisTokenBuckets(redis);
  const ours = Date.now;
  try {
    // A web process whose clock is an hour ahead would find the bucket full again.
    for (const ahead of [0, 3_600_000, -3_600_000]) {
      Date.now = () => ours() + ahead;
      await buckets.take('clock', { requests: 10, windowSeconds: 3600 }, 4);
    }
  } finally {
    Date.now = ours;
  }
  const { granted, now } = await buckets.take('clock', { requests: 10, windowSeconds: 3600 }, 4);
  expect(granted).toBe(0);
  const [seconds] = (await redis.time()) as unknown as [string];
  expect(Math.abs(now / 1000 - Number(seconds))).toBeLessThanOrEqual(10);
});

test('a clock that is set back neither fills nor empties a bucket', async () => {
  let now = 1_000_000;
  const buckets = memoryTokenBuckets(() => now);
  await buckets.take('back', { requests: 10, windowSeconds: 10 }, 10);
  now -= 60_000;
  expect((await buckets.take('back', { requests: 10, windowSeconds: 10 }, 1)).granted).toBe(0);
  now += 1000;
  expect((await buckets.take('back', { requests: 10, windowSeconds: 10 }, 5)).granted).toBe(1);
});

test('G5: if Redis does not answer, all waiting requests are rejected at once', async () => {
  let calls = 0;
  const limiter = createRateLimiter({
    async take() {
      calls++;
      await new Promise(setImmediate);
      throw new Error('no answer');
    },
  });
  const key = keyWith(10, 1);
  const first = limiter.take(key, 'users.track');
  const results = await Promise.allSettled([first, ...[1, 2, 3].map(() => limiter.take(key, 'users.track'))]);
  expect(results.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected', 'rejected']);
  expect(calls).toBe(1);
});

test('a busy web process takes tokens ahead, which saves round trips and keeps the limit', async () => {
  let takes = 0;
  const memory = memoryTokenBuckets();
  const limiter = createRateLimiter({
    async take(...requested) {
      takes++;
      await new Promise(setImmediate);
      return memory.take(...requested);
    },
  });
  const [requests, windowSeconds] = [20_000, 3600];
  const key = keyWith(requests, windowSeconds);
  const started = performance.now();
  let allowed = 0;
  let attempts = 0;
  while (allowed === attempts) {
    attempts += 16;
    const answers = await Promise.all(Array.from({ length: 16 }, () => limiter.take(key, 'users.track')));
    allowed += answers.filter((answer) => answer.allowed).length;
  }
  const flowed = (requests / windowSeconds) * ((performance.now() - started) / 1000);
  expect(allowed).toBeLessThanOrEqual(requests + flowed + 1);
  expect(allowed).toBeGreaterThan(0.99 * requests);
  expect(takes).toBeLessThan(attempts / 16 / 2);
});

test('a changed limit applies from the next take on, even under constant load', async () => {
  const sizes: number[] = [];
  const memory = memoryTokenBuckets();
  const limiter = createRateLimiter({
    async take(...requested) {
      sizes.push(requested[1].requests);
      await new Promise(setImmediate);
      return memory.take(...requested);
    },
  });
  const key = keyWith(10, 3600);
  const first = limiter.take(key, 'users.track');
  const changed = { ...keyWith(5, 3600), workspaceId: key.workspaceId };
  const answers = await Promise.all([first, limiter.take(changed, 'users.track')]);
  expect(sizes).toEqual([10, 5]);
  expect(answers.map(({ limit }) => limit)).toEqual([10, 5]);
});

test('a web process that is not busy takes no tokens ahead', async () => {
  const wanted: number[] = [];
  const memory = memoryTokenBuckets();
  const limiter = createRateLimiter({
    take(...query) {
      wanted.push(query[2]);
      return memory.take(...query);
    },
  });
  const key = keyWith(1000, 3600);
  for (let index = 0; index < 10; index++) {
    expect((await limiter.take(key, 'users.track')).remaining).toBe(999 - index);
    await sleep(30);
  }
  expect(Math.max(...wanted)).toBeLessThan(10);
});
