import { beforeAll, describe, expect, test } from 'vitest';
import { refusePoison, takePoison } from '../../tools/chaos/poison.ts';
import { type PenstockOn, penstockOn } from '../admin/penstock.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { eitherBackend, type Fleet, startFleet } from './fleet.ts';
import { type Answer, createClient } from './keep-alive-client.ts';

const REASON = 'the store refuses poison';
const TIME = '2026-01-02T03:04:05.000Z';

/** Full requests sent at the same time, each to all lanes; the first one contains the invalid object. */
const REQUESTS = 8;
const PER_ARRAY = 75;

describe.each(eitherBackend)('one object in a full request cannot be applied; queue on %s', (backend) => {
  let fleet: Fleet;
  let on: PenstockOn;
  let answers: Answer[];
  let later: Answer;

  beforeAll(async () => {
    fleet = await startFleet(backend);
    on = penstockOn(fleet.env.DATABASE_URL!, fleet.env);
    await refusePoison(fleet.pool, REASON);
    const client = createClient(fleet.workspace.key);
    const clients = Array.from({ length: REQUESTS }, () => createClient(fleet.workspace.key));
    answers = await Promise.all(
      clients.map(({ post }, number) => {
        const body = fullRequest(number);
        if (number === 0) body.events[37]!.name = 'poison';
        return post(fleet.edges[0]!.port, '/users/track', body);
      }),
    );
    // A later request of the same user.
    later = await client.post(fleet.edges[1]!.port, '/users/track', {
      attributes: [{ external_id: 'user-37', after: true }],
    });
    for (const { close } of [client, ...clients]) close();
    return fleet.stop;
  });

  function fullRequest(request: number) {
    const users = Array.from({ length: PER_ARRAY }, (_, user) => ({ external_id: `user-${user}` }));
    return {
      attributes: users.map((user) => ({ ...user, points: { inc: 1 }, log: { add: [request] } })),
      events: users.map((user) => ({ ...user, name: 'visited', time: TIME, properties: { request } })),
      purchases: users.map((user) => ({
        ...user,
        product_id: 'tea',
        currency: 'EUR',
        price: 1.5,
        time: TIME,
      })),
    };
  }

  async function count(what: string): Promise<number> {
    const { rows } = await fleet.pool.query(`select ${what} as count`);
    return Number(rows[0].count);
  }

  const events = (name: string) => count(`(select count(*) from events where name = '${name}')`);

  test('the requests are accepted, including the invalid object', () => {
    for (const { status, body } of [...answers, later]) {
      expect(status).toBe(201);
      expect(body).not.toHaveProperty('errors');
    }
  });

  test('G4: its neighbours in request, envelope and lane are applied once', async () => {
    const all = REQUESTS * PER_ARRAY;
    const purchases = () => count('(select count(*) from purchases)');
    await waitUntil(async () => (await events('visited')) === all - 1 && (await purchases()) === all, {
      what: 'the neighbours',
    });
    expect(await count('(select sum(count) from event_summaries)')).toBe(all - 1);
    expect(await count('(select sum(revenue) from purchase_summaries)')).toBe(all * 1.5);
    expect(await count("(select sum((custom_attributes -> 'points')::integer) from profiles)")).toBe(all);
    expect(await events('poison')).toBe(0);
  });

  test('G4: later operations of its user are applied', async () => {
    const after =
      "(select count(*) from profiles where external_id = 'user-37' and custom_attributes ? 'after')";
    await waitUntil(async () => (await count(after)) === 1, { what: 'the later operation' });
  });

  test('G4: it is a dead letter with its reason, its request id and its object', async () => {
    const { id } = await onlyLetter();
    expect(await on.json(['dead-letters', 'show', id])).toMatchObject({
      state: 'waiting',
      kind: 'events',
      reason: REASON,
      request_id: answers[0]!.requestId,
      object: {
        name: 'poison',
        identifier: { external_id: 'user-37' },
        time: TIME,
        properties: { request: 0 },
      },
    });
  });

  test('G4: replayed while it still cannot be applied, it is a dead letter again', async () => {
    const { id } = await onlyLetter();
    expect(await on.run(['dead-letters', 'replay', id])).toMatchObject({ code: 0 });
    await waitUntil(async () => (await onlyLetter()).state === 'waiting', {
      what: 'the dead letter again',
    });
    expect(await onlyLetter()).toMatchObject({ replays: 1, reason: REASON });
    expect(await events('poison')).toBe(0);
  });

  test('G2: replayed repeatedly once it can be applied, it is applied once', async () => {
    await takePoison(fleet.pool);
    const { id } = await onlyLetter();
    await Promise.all([1, 2].map(() => on.run(['dead-letters', 'replay', id])));
    await waitUntil(async () => (await onlyLetter()).state === 'replayed', { what: 'the replay' });
    await on.run(['dead-letters', 'replay', id]);
    await waitUntil(async () => (await waitingJobs()) === 0, { what: 'empty lanes' });
    expect(await events('poison')).toBe(1);
    expect(await count("(select sum(count) from event_summaries where name = 'poison')")).toBe(1);
    expect(await count('(select count(*) from events)')).toBe(REQUESTS * PER_ARRAY);
  });

  async function onlyLetter(): Promise<{ id: string; state: string; replays: number; reason: string }> {
    const { rows } = await fleet.pool.query('select id, state, replays, reason from dead_letters');
    expect(rows).toHaveLength(1);
    return rows[0];
  }

  /** Returns the number of waiting jobs that a web process reports. */
  async function waitingJobs(): Promise<number> {
    const metrics = await (await fetch(`http://127.0.0.1:${fleet.edges[0]!.port}/metrics`)).text();
    const waiting = [...metrics.matchAll(/^penstock_queue_depth\{.*\} (\d+)$/gm)];
    expect(waiting).toHaveLength(Number(fleet.env.LANES));
    return waiting.reduce((sum, [, jobs]) => sum + Number(jobs), 0);
  }
});
