import { setTimeout as sleep } from 'node:timers/promises';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createEffects } from '../../src/queue/effects.ts';
import type { Database } from '../../src/store/database.ts';
import { eitherBackend, type Fleet, startFleet } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { waitUntil } from '../setup/fixtures.ts';
import type { StoreProxy } from '../setup/proxy.ts';
import { createGroup } from '../setup/workspace.ts';
import { openProxiedStore } from './proxied-store.ts';

describe('waiting for envelopes to take effect', () => {
  let database: Database;
  let proxied: Database;
  let proxy: StoreProxy;
  beforeAll(async () => {
    const store = await openProxiedStore();
    ({ database, proxied, proxy } = store);
    return store.stop;
  });

  const apply = (...ids: string[]) =>
    database.pool.query('insert into ledger (envelope_id) select unnest($1::uuid[])', [ids]);

  test('ends when the last of them has taken effect, and not before', async () => {
    const [one, two] = [uuidv7(), uuidv7()];
    await apply(one);
    let ended = false;
    const awaited = createEffects(database.pool)
      .awaited([one, two], 5000)
      .finally(() => {
        ended = true;
      });
    await sleep(150);
    expect(ended).toBe(false);
    await apply(two);
    expect(await awaited).toBe(true);
  });

  test('ends with false after its timeout, separately for each caller', async () => {
    const effects = createEffects(database.pool);
    const [late, never] = [uuidv7(), uuidv7()];
    const from = performance.now();
    const waits = [effects.awaited([late], 5000), effects.awaited([never], 200)];
    expect(await waits[1]).toBe(false);
    expect(performance.now() - from).toBeGreaterThan(190);
    await apply(late);
    expect(await waits[0]).toBe(true);
    // A new caller is served after a pause without callers.
    expect(await effects.awaited([late, late], 5000)).toBe(true);
    expect(await effects.awaited([], 5000)).toBe(true);
  });

  test('G5: sends one query at a time to the store, however many callers wait', async () => {
    let calls = 0;
    let most = 0;
    const query: Database['pool']['query'] = database.pool.query.bind(database.pool);
    const counting = {
      async query(asking: { text: string; values: unknown[] }) {
        most = Math.max(most, ++calls);
        return query(asking).finally(() => calls--);
      },
    } as Database['pool'];
    const effects = createEffects(counting);
    const ids = Array.from({ length: 200 }, () => uuidv7());
    const waits = Promise.all(ids.map((id) => effects.awaited([id], 10_000)));
    await apply(...ids);
    expect(new Set(await waits)).toEqual(new Set([true]));
    expect(most).toBe(1);
  });

  test.each(['standStill', 'leave'] as const)('treats an outage of Postgres as a delay: %s', async (how) => {
    const effects = createEffects(proxied.pool);
    const id = uuidv7();
    await apply(id);
    proxy[how]();
    const from = performance.now();
    expect(await effects.awaited([id], 300)).toBe(false);
    expect(performance.now() - from).toBeLessThan(2000);
    await proxy.comeBack();
    expect(await effects.awaited([id], 5000)).toBe(true);
  });
});

describe.each(eitherBackend)('a setting that workers do not process, with the queue in %s', (backend) => {
  let fleet: Fleet;
  let news: string;
  beforeAll(async () => {
    fleet = await startFleet(backend, { edges: 1, workers: 0, env: { LOG_LEVEL: 'info' } });
    news = await createGroup(fleet.pool, fleet.workspace.id, 'email');
  });
  afterAll(() => fleet.stop());

  test('is answered before clients time out, with an error in the log, and takes effect later', async () => {
    const { port } = fleet.edges[0]!;
    const from = performance.now();
    const { status, headers, body } = await send(port, {
      path: '/subscription/status/set',
      key: fleet.workspace.key,
      json: { subscription_group_id: news, subscription_state: 'unsubscribed', email: 'late@x.com' },
    });
    expect(performance.now() - from).toBeLessThan(2000);
    expect({ status, body }).toEqual({ status: 201, body: { message: 'success' } });
    const line = await waitUntil(
      () => fleet.edges[0]!.log.find(({ request_id }) => request_id === headers.get('x-request-id')),
      { what: 'the log line' },
    );
    expect(line).toMatchObject({ status: 201, accepted: 1, error: expect.any(String) });
    await fleet.startWorker();
    await waitUntil(
      async () =>
        (await fleet.pool.query("select from subscription_states where subject = 'late@x.com'")).rowCount,
      { what: 'the state' },
    );
  });
});
