import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { calculatorPage } from '../../src/docs/calculator.ts';
import { MICROSECONDS, sizeInstallation, type Traffic } from '../../src/docs/sizing.ts';
import { packageRoot } from '../../src/platform/files.ts';

const page = readFileSync(path.join(packageRoot, 'docs/evidence/sizing.md'), 'utf8');
const traffic: Traffic = {
  ...{ objectsPerSecond: 10_000, singlePercent: 0, storedUsers: 1_000_000, queue: 'redis', ledgerDays: 7 },
};

/** Returns the cells of a row in the table of examples, without its first cell. */
function cellsOf(row: string): string[] {
  const examples = page.split('With large requests and the queue in Redis:')[1]!;
  const line = examples.split('\n').find((one) => one.startsWith(`| ${row} |`))!;
  return line
    .slice(row.length + 4, -1)
    .split('|')
    .map((cell) => cell.trim());
}

describe('sizeInstallation', () => {
  test.each([
    [10_000, 0],
    [100_000, 1],
    [1_000_000, 2],
  ])(
    'returns the column of docs/evidence/sizing.md for %i objects per second',
    (objectsPerSecond, column) => {
      const sizing = sizeInstallation({ ...traffic, objectsPerSecond });
      const numbersOf = (row: string) => [...cellsOf(row)[column]!.matchAll(/[\d.]+/g)].map(Number);
      const gigabytes = (bytes: number) => bytes / 1e9;
      expect([sizing.webProcesses]).toEqual(numbersOf('web processes'));
      expect([sizing.workerProcesses]).toEqual(numbersOf('worker processes'));
      expect([sizing.redisServers]).toEqual(numbersOf('Redis servers'));
      const { lanes, shards, postgresServers } = sizing;
      expect(shards > 1 ? [lanes, shards, lanes / shards] : [lanes]).toEqual(
        numbersOf('lanes (`LANES` × `SHARDS`)'),
      );
      const cores = Math.ceil(sizing.cores.postgres);
      expect(postgresServers > 1 ? [cores, postgresServers] : [cores]).toEqual(numbersOf('Postgres cores'));
      expect(Number((sizing.growthBytesPerDay / 1e12).toPrecision(1))).toBe(
        numbersOf('Tables grow per day by')[0],
      );
      expect(gigabytes(sizing.redisBytes)).toBeCloseTo(
        numbersOf('Memory of Redis for one minute without Postgres')[0]!,
        1,
      );
    },
  );

  test('uses the processor times of docs/evidence/sizing.md', () => {
    const rows = page
      .split('\n')
      .map((line) => /^\| (Redis|Postgres) \| (large|single) \|(.*)/.exec(line))
      .filter((match) => match !== null)
      .map(([, queue, size, cells]) => [`${queue} ${size}`, cells!.split('|').slice(0, 4).map(Number)]);
    const used = Object.entries(MICROSECONDS).flatMap(([queue, sizes]) =>
      Object.entries(sizes).map(([size, { web, worker, postgres, redis }]) => [
        `${queue === 'redis' ? 'Redis' : 'Postgres'} ${size}`,
        [web, worker, postgres, redis],
      ]),
    );
    expect(rows).toEqual(used);
  });

  test('has the sums of processor time that docs/performance.md states', () => {
    const guide = readFileSync(path.join(packageRoot, 'docs/performance.md'), 'utf8');
    const sumOf = (times: Record<string, number>) =>
      `${Math.round(Object.values(times).reduce((sum, time) => sum + time))} µs`;
    const { redis, postgres } = MICROSECONDS;
    expect(guide).toContain(`| ${sumOf(redis.large)}, ${sumOf(redis.single)} |`);
    expect(guide).toContain(`| ${sumOf(postgres.large)}, ${sumOf(postgres.single)} |`);
  });

  test('charges web 16 µs per object if one object in ten is sent alone', () => {
    const { cores } = sizeInstallation({ ...traffic, singlePercent: 10 });
    expect(Math.round((cores.web * 0.6 * 1e6) / traffic.objectsPerSecond)).toBe(16);
  });

  test('needs no Redis if the queue is in Postgres', () => {
    const sizing = sizeInstallation({ ...traffic, queue: 'postgres' });
    expect(sizing).toMatchObject({ redisServers: 0, redisBytes: 0, shards: 1, cores: { redis: 0 } });
  });

  test('warns about traffic above the limits of one Postgres and of 256 lanes', () => {
    const warningsOf = (change: Partial<Traffic>) =>
      sizeInstallation({ ...traffic, ...change }).warnings.join(' ');
    expect(warningsOf({})).toBe('');
    expect(warningsOf({ objectsPerSecond: 400_000 })).toContain('Use Citus');
    expect(warningsOf({ objectsPerSecond: 400_000, queue: 'postgres' })).toContain('Use Redis');
    expect(warningsOf({ objectsPerSecond: 10_000_000 })).toContain('256 lanes');
  });
});

describe('calculatorPage', () => {
  const render = (query: string) => calculatorPage(new URLSearchParams(query)).text;

  test('shows the values of the query in the form, and their result', () => {
    const text = render('objects_per_second=1000000&queue=redis&ledger_days=30');
    expect(text).toContain(
      'name="objects_per_second" type="number" min="1" max="10000000" step="1" required value="1000000"',
    );
    expect(text).toContain('<td>72, in 4 shards of 18</td>');
    expect(text).toContain('63 cores on 4 servers');
    expect(render('queue=postgres')).toContain('<option value="postgres" selected>');
  });

  test.each(['0', '', '1e9', '-1', '10000001', '<b>'])(
    'names the field and the range instead of a result for the rate "%s"',
    (rate) => {
      const text = render(`objects_per_second=${encodeURIComponent(rate)}`);
      expect(text).toContain('Objects per second at the peak: enter a whole number from 1 to 10,000,000.');
      expect(text).toContain('aria-invalid="true" aria-describedby="error-objects_per_second"');
      expect(text).not.toContain('id="result"');
      expect(text).not.toContain('<b>');
    },
  );
});
