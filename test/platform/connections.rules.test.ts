import { expect, test } from 'vitest';
import { readConfig } from '../../src/platform/config.ts';
import { mostConnections, poolSizeWithin } from '../../src/start/connections.ts';

const REDIS_URL = 'redis://cache';

test('mostConnections returns the default sums that docs/operations.md states', () => {
  expect(mostConnections(readConfig({}))).toBe(65);
  expect(mostConnections(readConfig({ REDIS_URL }))).toBe(32);
});

test.each([
  [{}, 5],
  [{ DATABASE_MAX_CONNECTIONS: '65' }, 5],
  [{ DATABASE_MAX_CONNECTIONS: '64' }, 4],
  [{ DATABASE_MAX_CONNECTIONS: '26' }, 1],
  [{ LANES: '16' }, 3],
  [{ REDIS_URL, LANES: '64' }, 5],
])('poolSizeWithin keeps the sum of %o within the limit with pools of %i', (given, size) => {
  const config = readConfig(given);
  expect(poolSizeWithin(config)).toBe(size);
  const sum = mostConnections({ ...config, DATABASE_POOL_SIZE: size });
  expect(sum).toBeLessThanOrEqual(config.DATABASE_MAX_CONNECTIONS);
});

test('poolSizeWithin rejects a limit below every pool size, and names the number it needs', () => {
  const config = readConfig({ LANES: '64' });
  expect(() => poolSizeWithin(config)).toThrow(
    'DATABASE_MAX_CONNECTIONS is 100, and LANES=64 needs at least 215',
  );
});
