import { setTimeout as sleep } from 'node:timers/promises';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createEffects } from '../../src/queue/effects.ts';
import type { Database } from '../../src/store/database.ts';
import { type Fleet, startFleet } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { waitUntil } from '../setup/fixtures.ts';
import type { StoreProxy } from '../setup/proxy.ts';
import { openProxiedStore } from './proxied-store.ts';

/** Milliseconds after which clients time out. */
const ANSWERED_WITHIN = 2000;

const decide = (pool: Database['pool'], id: string, error: string | null = null) =>
  pool.query('insert into outcomes (object_id, error) values ($1, $2)', [id, error]);

describe('waiting for the outcomes of objects', () => {
  let database: Database;
  let proxied: Database;
  let proxy: StoreProxy;
  beforeAll(async () => {
    const store = await openProxiedStore();
    ({ database, proxied, proxy } = store);
    return store.stop;
  });

  async function timed<T>(work: Promise<T>) {
    const from = performance.now();
    return { result: await work, milliseconds: performance.now() - from };
  }

  test('returns the errors of objects that did not take effect, by id', async () => {
    const [good, bad, other] = [uuidv7(), uuidv7(), uuidv7()];
    await decide(database.pool, good);
    await decide(database.pool, bad, 'no such user');
    await decide(database.pool, other, 'the error of another request');
    expect(await createEffects(database.pool).outcomes([good, bad])).toEqual({
      errors: new Map([[bad, 'no such user']]),
    });
  });

  test('waits until the outcome of every object is stored', async () => {
    const [first, last] = [uuidv7(), uuidv7()];
    const received = createEffects(database.pool).outcomes([first, last]);
    await decide(database.pool, first);
    await sleep(200);
    await decide(database.pool, last, 'taken');
    expect(await received).toEqual({ errors: new Map([[last, 'taken']]) });
  });

  test('returns `unknown` before clients time out if an object has no outcome', async () => {
    const appliedId = uuidv7();
    await decide(database.pool, appliedId);
    const { result, milliseconds } = await timed(
      createEffects(database.pool).outcomes([appliedId, uuidv7()]),
    );
    expect(result).toEqual({ unknown: expect.any(String) });
    expect(milliseconds).toBeGreaterThan(1000);
    expect(milliseconds).toBeLessThan(ANSWERED_WITHIN);
  });

  test.each(['standStill', 'leave'] as const)(
    'ends without an error while Postgres is unavailable (%s)',
    async (how) => {
      proxy[how]();
      const { result, milliseconds } = await timed(createEffects(proxied.pool).outcomes([uuidv7()]));
      await proxy.comeBack();
      expect(result).toEqual({ unknown: expect.any(String) });
      expect(milliseconds).toBeLessThan(ANSWERED_WITHIN);
    },
  );

  test('treats a short outage of Postgres as a delay', async () => {
    const id = uuidv7();
    await decide(database.pool, id, 'taken');
    proxy.leave();
    const received = createEffects(proxied.pool).outcomes([id]);
    await sleep(300);
    await proxy.comeBack();
    expect(await received).toEqual({ errors: new Map([[id, 'taken']]) });
  });
});

describe('a request whose answer reports outcomes', () => {
  let fleet: Fleet;
  beforeAll(async () => {
    fleet = await startFleet('postgres', { edges: 1, workers: 0, env: { LOG_LEVEL: 'info' } });
  });
  afterAll(() => fleet.stop());

  const rename = (name: string) => ({ current_external_id: name, new_external_id: `${name}-new` });
  const call = (...names: string[]) =>
    send(fleet.edges[0]!.port, {
      path: '/users/external_ids/rename',
      key: fleet.workspace.key,
      json: { external_id_renames: [...names.map(rename), rename('')] },
    });

  /** Ids of the objects that are on disk in the queue for these users. */
  const idsOf = async (...names: string[]) => {
    const { rows } = await fleet.pool.query<{ data: unknown }>('select data from bullmq.job');
    const objects = rows.flatMap(({ data }) => {
      const envelope = (typeof data === 'string' ? JSON.parse(data) : data) as {
        objects: { id: string; current_external_id: string }[];
      };
      return envelope.objects;
    });
    const ids = names.map((name) => objects.find((object) => object.current_external_id === name)?.id);
    return ids.every((id) => id !== undefined) ? ids : undefined;
  };
  const refused = { type: "'current_external_id' is required", input_array: 'external_id_renames' };

  test('is answered with 201 once the workers have decided, with the objects that they refused', async () => {
    const answer = call('ada', 'grace');
    const [ada, grace] = await waitUntil(() => idsOf('ada', 'grace'), { what: 'the objects' });
    await decide(fleet.pool, ada!);
    await decide(fleet.pool, grace!, 'new_external_id is already in use');
    const { status, body } = await answer;
    expect({ status, body }).toEqual({
      status: 201,
      body: {
        external_ids: [rename('ada')],
        rename_errors: [
          { type: 'new_external_id is already in use', input_array: 'external_id_renames', index: 1 },
          { ...refused, index: 2 },
        ],
        message: 'success',
      },
    });
  });

  test('is answered with 202 before clients time out if the workers do not decide', async () => {
    const from = performance.now();
    const { status, headers, body } = await call('alan');
    expect(performance.now() - from).toBeLessThan(ANSWERED_WITHIN);
    expect({ status, body }).toEqual({
      status: 202,
      body: {
        external_ids: [rename('alan')],
        rename_errors: [{ ...refused, index: 1 }],
        message: 'success',
        pending: true,
      },
    });
    expect(await idsOf('alan')).toHaveLength(1);
    const line = await waitUntil(
      () => fleet.edges[0]!.log.find(({ request_id }) => request_id === headers.get('x-request-id')),
      { what: 'the log line' },
    );
    expect(line).toMatchObject({ status: 202, accepted: 1, rejected: 1, error: expect.any(String) });
  });
});
