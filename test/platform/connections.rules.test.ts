import { expect, test } from 'vitest';
import { readConfig } from '../../src/platform/config.ts';
import { connectionsNeeded, fittingPoolSize } from '../../src/start/connections.ts';

const REDIS_URL = 'redis://cache';

test('connectionsNeeded returns the default sums that docs/postgres-connections.md states', () => {
  expect(connectionsNeeded(readConfig({}))).toBe(65);
  expect(connectionsNeeded(readConfig({ REDIS_URL }))).toBe(32);
});

test.each([
  [{}, 5],
  [{ DATABASE_MAX_CONNECTIONS: '65' }, 5],
  [{ DATABASE_MAX_CONNECTIONS: '64' }, 4],
  [{ DATABASE_MAX_CONNECTIONS: '26' }, 1],
  [{ LANES: '16' }, 3],
  [{ REDIS_URL, LANES: '64' }, 5],
])('fittingPoolSize keeps the sum of %o within the limit with pools of %i', (given, size) => {
  const config = readConfig(given);
  expect(fittingPoolSize(config)).toBe(size);
  const sum = connectionsNeeded({ ...config, DATABASE_POOL_SIZE: size });
  expect(sum).toBeLessThanOrEqual(config.DATABASE_MAX_CONNECTIONS);
});

test('fittingPoolSize rejects a limit below every pool size, and names the number it needs', () => {
  const config = readConfig({ LANES: '64' });
  expect(() => fittingPoolSize(config)).toThrow(
    'DATABASE_MAX_CONNECTIONS is 100, and LANES=64 needs at least 215',
  );
});
