import { setTimeout as sleep } from 'node:timers/promises';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createKeptTokenBuckets } from '../../src/limits/token-buckets.ts';
import { createLog } from '../../src/platform/log.ts';
import type { Database } from '../../src/store/database.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { type Fleet, startFleet } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { createDatabase, waitUntil } from '../setup/fixtures.ts';
import { createWorkspace, type TestWorkspace } from '../setup/workspace.ts';

const HOUR = 3600;

describe('a rate limit of an hour that a web process counts by itself', () => {
  let fleet: Fleet;
  beforeAll(async () => {
    fleet = await startFleet('postgres', { edges: 1, workers: 0 });
  });
  afterAll(() => fleet?.stop());

  async function limited(): Promise<TestWorkspace> {
    const workspace = await createWorkspace(fleet.pool, `limited ${uuidv7()}`);
    await fleet.pool.query("insert into rate_limits values ($1, 'users.export.ids', 5, $2)", [
      workspace.id,
      HOUR,
    ]);
    return workspace;
  }

  async function request({ key }: TestWorkspace) {
    const { port } = fleet.edges[0]!;
    const json = { external_ids: ['nobody'] };
    const { status, headers } = await send(port, { path: '/users/export/ids', key, json });
    const of = (name: string) => Number(headers.get(name));
    return { status, left: of('x-ratelimit-remaining'), reset: of('x-ratelimit-reset'), headers };
  }

  test('survives a stop and restart of the process exactly', async () => {
    const workspace = await limited();
    for (const left of [4, 3, 2]) expect(await request(workspace)).toMatchObject({ status: 201, left });
    await fleet.end(fleet.edges[0]!, 'SIGTERM');
    await fleet.startEdge();
    for (const left of [1, 0]) expect(await request(workspace)).toMatchObject({ status: 201, left });
    const refused = await request(workspace);
    expect(refused.status).toBe(429);
    const wait = Number(refused.headers.get('retry-after'));
    expect(wait).toBeGreaterThan(600);
    expect(Math.abs(refused.reset - Date.now() / 1000 - wait)).toBeLessThan(10);
  });

  test('survives a kill of the process, except for requests of the last seconds', async () => {
    const workspace = await limited();
    for (let index = 0; index < 5; index++) expect((await request(workspace)).status).toBe(201);
    const kept = async () => {
      const { rows } = await fleet.pool.query('select tokens from token_buckets where owner_id = $1', [
        workspace.id,
      ]);
      return rows[0]?.tokens < 1;
    };
    await waitUntil(kept, { what: 'the bucket to be written down' });
    await fleet.end(fleet.edges[0]!, 'SIGKILL');
    await fleet.startEdge();
    expect((await request(workspace)).status).toBe(429);
  });
});

describe('buckets of long windows', () => {
  let database: Database;
  beforeAll(async () => {
    const { url } = await createDatabase();
    database = openDatabase(url, 2);
  });
  afterAll(() => database?.stop());

  const log = createLog('test', 'silent');
  const open = (pool: Database['pool'], clock = Date.now) =>
    createKeptTokenBuckets({ counter: 'web', pool, log, clock });
  const written = async (): Promise<number> =>
    (await database.pool.query('select count(*)::integer as count from token_buckets')).rows[0].count;

  test('are written at most once a second, and buckets of short windows are never written', async () => {
    let writes = 0;
    const pool = {
      query: (...given: Parameters<Database['pool']['query']>) => {
        if (JSON.stringify(given[0]).includes('insert into')) writes++;
        return database.pool.query(...given);
      },
    } as unknown as Database['pool'];
    const { buckets, stop } = open(pool);
    const before = await written();
    const started = performance.now();
    const [long, short] = [`${uuidv7()}:default`, `${uuidv7()}:default`];
    while (performance.now() - started < 2500) {
      await buckets.take(long, { requests: 1_000_000, windowSeconds: HOUR }, 1);
      await buckets.take(short, { requests: 1_000_000, windowSeconds: 60 }, 1);
      await sleep(1);
    }
    await stop();
    const seconds = (performance.now() - started) / 1000;
    expect(writes).toBeGreaterThan(0);
    expect(writes).toBeLessThanOrEqual(seconds + 1);
    expect(await written()).toBe(before + 1);
  });

  test('are written together for many workspaces, and continue after a restart', async () => {
    let now = Date.now();
    const first = open(database.pool, () => now);
    const keys = Array.from({ length: 2500 }, () => `${uuidv7()}:default`);
    for (const key of keys)
      expect((await first.buckets.take(key, { requests: 10, windowSeconds: HOUR }, 4)).left).toBe(6);
    await first.stop();
    // After half an hour, half of a bucket is available again, as without the restart.
    now += (HOUR / 2) * 1000;
    const second = open(database.pool, () => now);
    for (const key of keys.slice(0, 20))
      expect(await second.buckets.take(key, { requests: 10, windowSeconds: HOUR }, 12)).toMatchObject({
        granted: 10,
        left: 0,
      });
    await second.stop();
  });

  test('are written later if a write fails', async () => {
    const first = open(database.pool);
    const key = `${uuidv7()}:default`;
    await first.buckets.take(key, { requests: 10, windowSeconds: HOUR }, 4);
    await database.pool.query('alter table token_buckets rename to away');
    await sleep(1500);
    await database.pool.query('alter table away rename to token_buckets');
    await first.stop();
    const second = open(database.pool);
    expect((await second.buckets.take(key, { requests: 10, windowSeconds: HOUR }, 1)).left).toBe(5);
    await second.stop();
  });
});
