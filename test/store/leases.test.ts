import { randomBytes } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { newId } from '../../src/platform/ids.ts';
import { openPool, type Pool } from '../../src/store/database.ts';
import {
  endLease,
  findKey,
  forgetRefused,
  insertKeyIfAbsent,
  type Key,
  takeLease,
} from '../../src/store/idempotency-keys.ts';
import { withImportLock } from '../../src/store/imports.ts';
import type { Lease, RowLease } from '../../src/store/leases.ts';
import { holdRetentionLock } from '../../src/store/retention-runs.ts';
import {
  endExport,
  finishExport,
  leaseExports,
  releaseExport,
  renewExport,
} from '../../src/store/segment-export-leases.ts';
import { requestSegmentExport } from '../../src/store/segment-exports.ts';
import { createDestination, replayFrom } from '../../src/store/stream-destinations.ts';
import {
  advanceDestination,
  leaseDestinations,
  releaseDestination,
  renewDestination,
} from '../../src/store/stream-leases.ts';
import { appendLog } from '../../src/store/stream-log.ts';
import { endTurn, takeTurn } from '../../src/store/user-search.ts';
import { createDatabase, createDatabaseOfOne, waitUntil } from '../setup/fixtures.ts';
import { entriesOf } from '../setup/stream-entries.ts';
import { createWorkspace } from '../setup/workspace.ts';

/** Milliseconds of a lease that does not end during a test. */
const LONG_MS = 60_000;

const ENDED = { what: 'the end of the lease', deadline: 5000 };

/** Pool of a process; several statements may run at the same time. */
let pool: Pool;
let workspaceId: string;

beforeAll(async () => {
  const { url } = await createDatabase();
  pool = openPool(url, 10);
  ({ id: workspaceId } = await createWorkspace(pool));
});
afterAll(() => pool?.end());

/** A lease that a caller holds. */
interface Held {
  /** Writes a result of the work. @returns false if the statement found that the lease is lost */
  write(): Promise<boolean>;
  renew?(milliseconds: number): Promise<boolean>;
  /** Ends the lease so that the row is free immediately. */
  release(): Promise<unknown>;
}

/** The leases of one table, which has one row with work. */
interface LeaseCase {
  /** Creates the row, free. */
  create(): Promise<void>;
  take(milliseconds: number): Promise<Held | undefined>;
  /** Whether leases are extended while the work runs. */
  renews?: true;
  /** Table and column of the end of the lease. */
  until: [table: string, column: string];
}

function destinationCase(): LeaseCase {
  const held = (lease: RowLease): Held => ({
    write: () =>
      advanceDestination(pool, lease, { position: '0', place: 0, delivered: 0, milliseconds: LONG_MS }),
    renew: (milliseconds) => renewDestination(pool, lease, { milliseconds }),
    release: () => releaseDestination(pool, lease),
  });
  return {
    renews: true,
    until: ['stream_destinations', 'leased_until'],
    async create() {
      await pool.query('delete from stream_destinations');
      await createDestination(pool, {
        ...{ workspaceId, id: newId(), name: 'crm', kind: 'webhook', settings: {}, secret: null },
        from: new Date(0),
      });
      const entry = { workspaceId, kind: 'i' as const, profileId: newId(), id: newId(), detail: {} };
      await appendLog(pool as never, entriesOf([entry]), new Date().toISOString());
    },
    async take(milliseconds) {
      const [lease] = await leaseDestinations(pool, { milliseconds, limit: 1, gathers: false });
      return lease && held(lease);
    },
  };
}

/** @param state `open` for leases to write an export, `ready` for leases to call its callback */
function exportCase(state: 'open' | 'ready'): LeaseCase {
  const counts = { users: 1, files: 1, bytes: 1 };
  const held = (lease: RowLease): Held => ({
    write: () => renewExport(pool, lease, { ...counts, milliseconds: LONG_MS }),
    renew: (milliseconds) => renewExport(pool, lease, { ...counts, milliseconds }),
    release: () => releaseExport(pool, lease, { retryMs: 0 }),
  });
  return {
    renews: true,
    until: ['segment_exports', 'due_at'],
    async create() {
      await pool.query('delete from segment_exports');
      await requestSegmentExport(pool, {
        ...{ workspaceId, id: newId(), segmentId: newId(), objectPrefix: 'x', fields: ['email'] },
        ...{ attributes: null, outputFormat: 'zip', url: 'http://x/', callback: 'http://x/' },
      });
      if (state === 'open') return;
      const [lease] = await leaseExports(pool, 'open', { milliseconds: LONG_MS, limit: 1 });
      await finishExport(pool, lease!, { ...counts, linkMs: LONG_MS, milliseconds: LONG_MS });
      await releaseExport(pool, lease!, { retryMs: 0 });
    },
    async take(milliseconds) {
      const [lease] = await leaseExports(pool, state, { milliseconds, limit: 1 });
      return lease && held(lease);
    },
  };
}

function keyCase(): LeaseCase {
  let key: Key;
  let requestId: string;
  return {
    until: ['idempotency_keys', 'lease_until'],
    async create() {
      await pool.query('delete from idempotency_keys');
      const hash = randomBytes(32);
      key = { ownerId: workspaceId, operation: 'users.track', hash, fingerprint: hash };
      requestId = newId();
      await insertKeyIfAbsent(pool, key, { requestId, lease: 0 });
    },
    async take(milliseconds) {
      const taken = await takeLease(pool, key, { requestId, lease: milliseconds });
      return (
        taken && {
          async write() {
            await forgetRefused(pool, key, taken);
            return (await findKey(pool, key)) === undefined;
          },
          release: () => endLease(pool, key, taken),
        }
      );
    },
  };
}

function searchCase(): LeaseCase {
  return {
    until: ['user_search_pass', 'leased_until'],
    async create() {
      await pool.query("update user_search_pass set leased_until = '-infinity'");
    },
    async take(milliseconds) {
      const turn = await takeTurn(pool, milliseconds);
      if (!turn) return undefined;
      const end = (pause: number) => endTurn(pool, turn.lease, { position: turn, ended: false, pause });
      return { write: () => end(LONG_MS), release: () => end(0) };
    },
  };
}

const cases: Record<string, LeaseCase> = {
  'delivery to a destination': destinationCase(),
  'writing of a segment export': exportCase('open'),
  'callback of a segment export': exportCase('ready'),
  'handling of an idempotency key': keyCase(),
  'pass over the search index': searchCase(),
};

/** Takes a lease that ends immediately, and then the lease of another caller. The first caller is frozen meanwhile. */
async function takeFromFrozen({ take }: LeaseCase) {
  const frozen = await take(1);
  const next = await waitUntil(() => take(LONG_MS), ENDED);
  return { frozen: frozen!, next: next! };
}

/** Returns the milliseconds until the end of the lease, by the clock of Postgres. */
async function millisecondsLeft({ until: [table, column] }: LeaseCase): Promise<number> {
  const { rows } = await pool.query(
    `select extract(epoch from ${column} - clock_timestamp())::float8 * 1000 as left from ${table}`,
  );
  return rows[0].left;
}

describe.each(Object.entries(cases))('lease of the %s', (_, one) => {
  const { create, take } = one;
  beforeEach(create);
  afterEach(() => {
    vi.useRealTimers();
  });

  test('is taken once by several simultaneous callers', async () => {
    const taken = await Promise.all(Array.from({ length: 10 }, () => take(LONG_MS)));
    expect(taken.filter(Boolean)).toHaveLength(1);
    expect(await take(LONG_MS)).toBeUndefined();
  });

  test('is free after its end', async () => {
    await take(1);
    expect(await waitUntil(() => take(LONG_MS), ENDED)).toBeDefined();
    expect(await take(LONG_MS)).toBeUndefined();
  });

  test('is kept after its end until another caller takes it', async () => {
    const held = await take(1);
    await waitUntil(async () => (await millisecondsLeft(one)) < 0, ENDED);
    expect(await held!.write()).toBe(true);
  });

  test('is lost by a frozen caller, whose later writes are refused', async () => {
    const { frozen, next } = await takeFromFrozen(one);
    expect(await frozen.write()).toBe(false);
    await frozen.release();
    expect(await take(LONG_MS)).toBeUndefined();
    expect(await next.write()).toBe(true);
  });

  test('is free as soon as it is released', async () => {
    const held = await take(LONG_MS);
    await held!.release();
    expect(await take(LONG_MS)).toBeDefined();
  });

  test.each([
    ['an hour behind', -3_600_000],
    ['an hour ahead', 3_600_000],
  ])('ends by the clock of Postgres if the clock of the caller is %s', async (_, ahead) => {
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + ahead });
    await take(LONG_MS);
    const left = await millisecondsLeft(one);
    expect(left).toBeGreaterThan(0);
    expect(left).toBeLessThanOrEqual(LONG_MS);
    expect(await take(LONG_MS)).toBeUndefined();
  });
});

describe.each(Object.entries(cases).filter(([, { renews }]) => renews))('lease of the %s', (_, one) => {
  beforeEach(one.create);

  test('ends later after each renewal', async () => {
    const held = await one.take(1000);
    expect(await held!.renew!(LONG_MS)).toBe(true);
    expect(await millisecondsLeft(one)).toBeGreaterThan(LONG_MS / 2);
    expect(await held!.renew!(2 * LONG_MS)).toBe(true);
    expect(await millisecondsLeft(one)).toBeGreaterThan(LONG_MS);
    expect(await one.take(LONG_MS)).toBeUndefined();
  });

  test('is not renewed by a frozen caller', async () => {
    const { frozen, next } = await takeFromFrozen(one);
    expect(await frozen.renew!(LONG_MS)).toBe(false);
    expect(await next.renew!(LONG_MS)).toBe(true);
  });
});

test('a renewal gives a finished export without a callback no next step', async () => {
  await pool.query('delete from segment_exports');
  await requestSegmentExport(pool, {
    ...{ workspaceId, id: newId(), segmentId: newId(), objectPrefix: 'x', fields: ['email'] },
    ...{ attributes: null, outputFormat: 'zip', url: 'http://x/', callback: null },
  });
  const counts = { users: 1, files: 1, bytes: 1, milliseconds: LONG_MS };
  const [lease] = await leaseExports(pool, 'open', { milliseconds: LONG_MS, limit: 1 });
  await finishExport(pool, lease!, { ...counts, linkMs: LONG_MS });
  await renewExport(pool, lease!, counts);
  const { rows } = await pool.query('select due_at from segment_exports');
  expect(rows).toEqual([{ due_at: null }]);
});

test('a lease ends when its destination is reset, and when its export has ended', async () => {
  const destination = cases['delivery to a destination']!;
  await destination.create();
  const held = await destination.take(LONG_MS);
  const { rows } = await pool.query('select workspace_id as "workspaceId", id from stream_destinations');
  await replayFrom(pool, rows[0], new Date(0));
  expect(await held!.write()).toBe(false);

  await cases['writing of a segment export']!.create();
  const [lease] = await leaseExports(pool, 'open', { milliseconds: LONG_MS, limit: 1 });
  await endExport(pool, lease!, 'the segment was archived');
  expect(await renewExport(pool, lease!, { users: 0, files: 0, bytes: 0, milliseconds: 1 })).toBe(false);
});

test('a turn of the search index is free if its lease was taken before the clock was set back', async () => {
  await pool.query("update user_search_pass set leased_until = now() + interval '9 minutes'");
  expect(await takeTurn(pool, LONG_MS)).toBeUndefined();
  await pool.query("update user_search_pass set leased_until = now() + interval '11 minutes'");
  expect(await takeTurn(pool, LONG_MS)).toBeDefined();
});

/** Runs work under an advisory lock. @returns undefined if another session holds the lock */
type WithLock = <T>(pool: Pool, work: (lease: Lease) => Promise<T>) => Promise<T | undefined>;

const importKey = { workspaceId: newId(), key: randomBytes(32) };
const locks: [what: string, withLock: WithLock, excludes: string][] = [
  ['retention', holdRetentionLock, 'other runs of the retention'],
  ['an import', (of, work) => withImportLock(of, importKey, work), 'other imports of the file'],
];

describe.each(locks)('lock of %s', (_, withLock, excludes) => {
  /** Connection pools of two processes. */
  let one: Pool;
  let another: Pool;
  beforeAll(async () => {
    const { url } = await createDatabaseOfOne();
    [one, another] = [openPool(url, 1), openPool(url, 1)];
  });
  afterAll(() => Promise.all([one.end(), another.end()]));

  const isFree = async (of: Pool) => (await withLock(of, async () => true)) === true;
  const loseSession = () =>
    another.query(`
      select pg_terminate_backend(pid) from pg_locks
      where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())`);

  test('keeps a second process away until the first one has ended, also with an error', async () => {
    const failing = withLock(one, async () => {
      expect(await withLock(another, async () => 'second')).toBeUndefined();
      throw new Error('the first has failed');
    });
    await expect(failing).rejects.toThrow('the first has failed');
    expect(await withLock(another, async () => 'third')).toBe('third');
  });

  test('is lost with its session: its signal aborts, a check fails, and another process starts', async () => {
    await withLock(one, async (lease) => {
      await lease.confirm();
      expect(lease.signal.aborted).toBe(false);
      await loseSession();
      await expect(lease.confirm()).rejects.toThrow(`the session that keeps away ${excludes} was lost`);
      expect(lease.signal.aborted).toBe(true);
      // Shorter than the time after which the pool closes an idle connection.
      await waitUntil(() => isFree(another), { what: 'the lock', deadline: 5000 });
    });
    expect(await isFree(one)).toBe(true);
  });

  test('is free as soon as the work ends, though its connection stays in the pool', async () => {
    await withLock(one, async () => {});
    expect(one.idleCount).toBe(1);
    expect(await isFree(another)).toBe(true);
  });
});
