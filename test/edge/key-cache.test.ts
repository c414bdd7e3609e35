import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createAuthenticator } from '../../src/edge/authenticate.ts';
import { createLog } from '../../src/platform/log.ts';
import type { Database, Pool } from '../../src/store/database.ts';
import { isDistributed, noteDistributed } from '../../src/store/distributed.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { createDatabase } from '../setup/fixtures.ts';
import { createGroup, createWorkspace, type TestWorkspace } from '../setup/workspace.ts';

const KEY_CACHE_MS = 2000;

let database: Database;
let workspace: TestWorkspace;
let looked = 0;
/** Whether queries to Postgres fail. */
let isAway = false;
let authenticator: ReturnType<typeof createAuthenticator>;
beforeAll(async () => {
  database = openDatabase((await createDatabase()).url, 2);
  workspace = await createWorkspace(database.pool);
  const { pool } = database;
  const counting = new Proxy(pool, {
    get(target, name) {
      if (name !== 'query') return Reflect.get(target, name, target);
      return (...given: Parameters<Pool['query']>) => {
        // A distributed Postgres takes one more statement, for the blocked ids of a workspace.
        const { name: statement } = given[0] as unknown as { name?: string };
        if (statement?.startsWith('find-api-keys')) looked++;
        return isAway ? Promise.reject(new Error('connect ECONNREFUSED')) : target.query(...given);
      };
    },
  }) as Pool;
  noteDistributed(counting, await isDistributed(pool));
  authenticator = createAuthenticator(counting, KEY_CACHE_MS, createLog('test', 'silent'));
});
afterAll(async () => {
  await authenticator.stop();
  await database.stop();
});

/** Number of look-ups for requests at these times, in ms after the first, one after the other. */
async function lookUps(method: 'authenticate' | 'renew', times: number[], from: number): Promise<number> {
  const before = looked;
  for (const time of times) await authenticator[method](`Bearer ${workspace.key}`, '127.0.0.1', from + time);
  return looked - before;
}

test('a key is looked up once within KEY_CACHE_MS', async () => {
  const from = Date.now();
  expect(await lookUps('authenticate', [0, 1, 1999, 2000], from)).toBe(1);
  expect(await lookUps('authenticate', [2001, 4001], from)).toBe(1);
});

test('requests with unknown groups cause at most one look-up of a key per second', async () => {
  const from = Date.now() + 60_000;
  expect(await lookUps('renew', [0, 1, 500, 999], from)).toBe(1);
  expect(await lookUps('renew', [1000, 1500, 1999], from)).toBe(1);
  const many = Array.from({ length: 100 }, (_, index) => 2000 + index);
  const before = looked;
  await Promise.all(many.map((time) => lookUps('renew', [time], from)));
  expect(looked - before).toBe(1);
});

test("each newly created group is found before the key's regular look-up", async () => {
  const from = Date.now() + 120_000;
  await lookUps('authenticate', [0], from);
  for (const time of [1, 2, 3]) {
    const group = await createGroup(database.pool, workspace.id, 'email', { name: `group ${time}` });
    const { groups } = await authenticator.renew(`Bearer ${workspace.key}`, '127.0.0.1', from + time);
    expect(groups.size).toBe(time);
    expect(groups.has(group)).toBe(true);
  }
});

/** Authenticates a key. The result is a promise in any case. */
const authenticate = async (header: string | undefined, now: number) =>
  authenticator.authenticate(header, '127.0.0.1', now);

test('a valid key stays cached, however many invalid keys are used', async () => {
  const from = Date.now() + 180_000;
  await lookUps('authenticate', [0], from);
  const madeUp = Array.from({ length: 10_500 }, (_, number) => number);
  for (let start = 0; start < madeUp.length; start += 500) {
    await Promise.all(
      madeUp.slice(start, start + 500).map((number) =>
        authenticate(`Bearer pk_made_up_${number}`, from).then(
          () => expect.fail('a made-up key opened the door'),
          ({ status }) => expect(status).toBe(401),
        ),
      ),
    );
  }
  expect(await lookUps('authenticate', [1], from)).toBe(0);
});

describe('while Postgres is unavailable', () => {
  const MINUTE = 60_000;
  const from = Date.now() + 240_000;
  let other: TestWorkspace;
  beforeAll(async () => {
    other = await createWorkspace(database.pool, 'other');
    await knock(workspace.key, 0);
    await knock(other.key, 2500);
    isAway = true;
  });
  afterAll(() => {
    isAway = false;
  });

  /**
   * Sends one request with a key, this many ms after the first one.
   * @returns the workspace, or the status of the refusal
   */
  const knock = (key: string | undefined, time: number) =>
    authenticate(key && `Bearer ${key}`, from + time).then(
      ({ workspaceId }) => workspaceId,
      ({ status }) => status ?? 503,
    );

  test('G5: a cached key is accepted for a minute after its last look-up, and no longer', async () => {
    for (const time of [2001, 30_000, MINUTE]) expect(await knock(workspace.key, time)).toBe(workspace.id);
    for (const time of [MINUTE + 1, MINUTE + 2000]) expect(await knock(workspace.key, time)).toBe(503);
  });

  test('each key has its own minute, regardless of how long it has been cached', async () => {
    expect(await knock(other.key, MINUTE + 2500)).toBe(other.id);
    expect(await knock(other.key, MINUTE + 2501)).toBe(503);
  });

  test('an unknown key gets 503 at once, and a missing key always gets 401', async () => {
    expect(await knock('pk_unknown', 0)).toBe(503);
    for (const time of [0, MINUTE, 10 * MINUTE]) expect(await knock(undefined, time)).toBe(401);
  });

  test('a key that was refused is accepted again once Postgres is back', async () => {
    isAway = false;
    expect(await knock(workspace.key, MINUTE + 5000)).toBe(workspace.id);
    isAway = true;
    expect(await knock(workspace.key, 2 * MINUTE + 5000)).toBe(workspace.id);
    expect(await knock(workspace.key, 2 * MINUTE + 5001)).toBe(503);
  });
});
