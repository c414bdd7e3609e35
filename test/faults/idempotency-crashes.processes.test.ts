import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { allOperations } from '../../src/operations/index.ts';
import { eitherBackend, type Fleet, startFleet } from '../guarantees/fleet.ts';
import { createAccess } from '../setup/access.ts';
import { type ApiAnswer, send } from '../setup/api.ts';
import { liftLimits } from '../setup/examples.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { lengthOf } from '../setup/length.ts';
import {
  askUntilAnswered,
  call,
  closeLanes,
  effectsOn,
  holdAnswers,
  newKey,
  ONCE,
  openRequest,
  saidBy,
  tracked,
} from './idempotency-scene.ts';

/** Requests in progress when a web process is killed, and the number of kills. */
const AT_ONCE = 24;
const KILLS = lengthOf({ short: 4, long: 40 });

describe.each(eitherBackend)('a web process dies during a request with a key, the queue in %s', (backend) => {
  let fleet: Fleet;
  beforeAll(async () => {
    // Requests wait this long while the test has closed the lanes.
    fleet = await startFleet(backend, { edges: 2, workers: 2, env: { QUEUE_TIMEOUT_MS: '3000' } });
    await liftLimits(fleet.pool, fleet.workspace.id);
  });
  afterAll(() => fleet?.stop());

  /** Kills the first web process, and starts a replacement. */
  async function kill(): Promise<void> {
    const victim = fleet.edges[0]!;
    await fleet.end(victim);
    await fleet.startEdge(victim.port);
    fleet.edges.reverse();
  }

  const isLost = (error: unknown): undefined => {
    expect(String(error)).toMatch(/fetch failed|terminated/);
    return undefined;
  };

  test('before it enqueues its outbox: the next one enqueues it once', async () => {
    const [key, json] = [newKey(), tracked('outbox')];
    const open = await closeLanes(fleet);
    const lost = call(fleet, key, { json }).catch(isLost);
    const requestId = await openRequest(fleet, 'users.track');
    await fleet.end(fleet.edges[0]!);
    // If the lanes rejected it at once, the client may have received a 503.
    expect([undefined, 503]).toContain((await lost)?.status);
    await open();
    await fleet.startEdge();

    const answers: ApiAnswer[] = [];
    for (let edge = 0; edge < 4; edge++) answers.push(await askUntilAnswered(fleet, key, { json }, edge));
    for (const answer of answers) expect(saidBy(answer)).toEqual({ ...saidBy(answers[0]!), requestId });
    expect(answers[0]).toMatchObject({ status: 201, body: { message: 'success', events_processed: 1 } });
    expect(await call(fleet, key, { json: tracked('other') })).toMatchObject({ status: 422 });
    expect((await effectsOn(fleet, ['outbox'])).get('outbox')).toEqual(ONCE);
  });

  test('after it enqueues and before it answers: the next one answers, without a second effect', async () => {
    const [key, json] = [newKey(), tracked('handed-over')];
    const cutOff = await holdAnswers(fleet);
    const lost = call(fleet, key, { json }).catch(isLost);
    const requestId = await openRequest(fleet, 'users.track');
    const isApplied = async () => {
      const { rows } = await fleet.pool.query("select from profiles where external_id = 'handed-over'");
      return rows.length > 0;
    };
    await waitUntil(isApplied, { what: 'what was handed over to be applied' });
    await fleet.end(fleet.edges[0]!);
    await cutOff();
    expect(await openRequest(fleet, 'users.track')).toBe(requestId);
    // After a while the request is answered without the answer of the workers, like all later repetitions.
    const first = await lost;
    await fleet.startEdge();

    const again = saidBy(await askUntilAnswered(fleet, key, { json }, 1));
    expect(again).toMatchObject({ status: 201, requestId });
    if (first) expect(saidBy(first)).toEqual(again);
    expect((await effectsOn(fleet, ['handed-over'])).get('handed-over')).toEqual(ONCE);
  });

  test('and the queue is away: 503, and the same request takes effect once later', async () => {
    const [key, json] = [newKey(), tracked('later')];
    const open = await closeLanes(fleet);
    const refused = await call(fleet, key, { json }, 1);
    await open();
    expect(refused).toMatchObject({ status: 503 });
    expect(refused.headers.get('retry-after')).toBe('1');
    const answer = await askUntilAnswered(fleet, key, { json });
    expect(answer).toMatchObject({ status: 201 });
    expect((await effectsOn(fleet, ['later'])).get('later')).toEqual(ONCE);
  });

  test('that creates a resource directly: the next one finds the resource, and returns it', async () => {
    const access = createAccess(fleet.pool);
    for (const [id, table] of [
      ['scim.users.create', 'accounts'],
      ['preference_center.create', 'preference_centers'],
    ] as const) {
      const operation = allOperations('service_id').find((one) => one.id === id)!;
      const admitted = await access.admit(operation, fleet.workspace);
      const request = { ...(await access.example(operation, fleet.workspace)), ...admitted };
      const key = newKey();
      const first = await call(fleet, key, { ...request, headers: { ...admitted.headers } });
      expect(first.status).toBe(201);
      const requestId = first.headers.get('x-request-id')!;
      // Simulates a death before the answer was stored.
      await fleet.pool.query(
        `update idempotency_keys set status = null, body = null, headers = null, lease_until = now()
          where request_id = $1`,
        [requestId],
      );
      const again = await call(fleet, key, { ...request, headers: { ...admitted.headers } });
      expect(saidBy(again)).toEqual(saidBy(first));
      expect(again.headers.get('location')).toBe(first.headers.get('location'));
      const { rows } = await fleet.pool.query(`select id from ${table} where id = $1`, [requestId]);
      expect(rows).toHaveLength(1);
    }
  });

  test('while another request with the key is in progress: 503 with Retry-After in time', async () => {
    const center = {
      name: 'held',
      preference_center_page_html: '<p>page</p>',
      confirmation_page_html: '<p>saved</p>',
    };
    const request = { path: '/preference_center/v1', json: center };
    const key = newKey();
    const { headers } = await call(fleet, key, request);
    await fleet.pool.query(
      `update idempotency_keys set status = null, body = null, lease_until = now() + interval '1 minute'
        where request_id = $1`,
      [headers.get('x-request-id')],
    );
    const started = performance.now();
    const waited = await Promise.all([0, 1].map((edge) => call(fleet, key, request, edge)));
    for (const answer of waited) {
      expect(answer).toMatchObject({
        status: 503,
        body: { message: 'A request with this Idempotency-Key is still being worked on' },
      });
      expect(answer.headers.get('retry-after')).toBe('1');
    }
    expect(performance.now() - started).toBeGreaterThan(1000);
  });

  test(
    'repeatedly at any moment: each request that clients repeat has exactly one effect',
    async () => {
      const users: string[] = [];
      const unequal: unknown[] = [];
      for (let round = 0; round < KILLS; round++) {
        const requests = Array.from({ length: AT_ONCE }, (_, index) => {
          const user = `killed-${round}-${index}`;
          users.push(user);
          return { key: newKey(), json: tracked(user) };
        });
        const ports = fleet.edges.map(({ port }) => port);
        const sendTo = (port: number, { key, json }: (typeof requests)[number]) =>
          send(port, {
            path: '/users/track',
            key: fleet.workspace.key,
            json,
            headers: { 'Idempotency-Key': key },
          });
        const firsts = requests.map((request) => sendTo(ports[0]!, request).catch(isLost));
        // By now some requests are answered, some are in progress, and some have not begun.
        await Promise.race([...firsts, sleep((32 * round) / KILLS)]);
        await kill();
        const firstAnswers = await Promise.all(firsts);
        await Promise.all(
          requests.map(async (request, index) => {
            const again = await askUntilAnswered(fleet, request.key, { json: request.json }, index);
            if (again.status !== 201) unequal.push(again);
            const before = firstAnswers[index];
            if (before?.status === 201 && saidBy(before).requestId !== saidBy(again).requestId)
              unequal.push([before, again]);
          }),
        );
      }
      expect(unequal).toEqual([]);
      const effects = await effectsOn(fleet, users);
      expect(effects.size).toBe(KILLS * AT_ONCE);
      expect([...effects].filter(([, effect]) => JSON.stringify(effect) !== JSON.stringify(ONCE))).toEqual(
        [],
      );
    },
    20_000 * KILLS + 100_000,
  );
});
