import { randomUUID } from 'node:crypto';
import { connect } from 'node:net';
import { beforeAll, describe, expect, test } from 'vitest';
import { linkSignals } from '../../src/platform/time-limit.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { type StoreProxy, startProxy } from '../setup/proxy.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { type Fleet, type Member, startFleet, statusOf } from './fleet.ts';
import { type Answer, createClient } from './keep-alive-client.ts';

/** Milliseconds after which clients give up. */
const ANSWERED_WITHIN = 2000;

const TIME = '2026-01-02T03:04:05Z';
const events = [{ external_id: 'nobody', name: 'knocked', time: TIME }];

/**
 * Starts a web process with a direct connection to Redis and a proxied one to Postgres, and a key in its
 * cache.
 */
async function startScene() {
  const fleet = await startFleet('redis', { edges: 0, workers: 0, env: { KEY_CACHE_MS: '100' } });
  const postgres = await startProxy(fleet.env.DATABASE_URL!);
  fleet.env.DATABASE_URL = postgres.url;
  // A lookup that fails because Postgres is away is logged at `debug`.
  fleet.env.LOG_LEVEL = 'debug';
  const edge = await fleet.startEdge();
  return { fleet, postgres, edge };
}

describe.each(['standStill', 'leave'] as const)('Postgres is away (%s) while Redis is available', (how) => {
  let fleet: Fleet;
  let postgres: StoreProxy;
  let edge: Member;
  /** Answers to requests of the known key, from before its lookup fails until a while after. */
  const answers: Answer[] = [];

  beforeAll(async () => {
    ({ fleet, postgres, edge } = await startScene());
    const client = createClient(fleet.workspace.key);
    const knock = () => client.post(edge.port, '/users/track', { events });
    expect(await knock()).toMatchObject({ status: 201 });
    postgres[how]();
    const failures = () => edge.log.filter(({ msg }) => /^Postgres did not answer/.test(String(msg))).length;
    // Lookups fail more than once: after the first failure they are retried.
    await waitUntil(
      async () => {
        answers.push(await knock());
        return failures() > 1;
      },
      { what: 'look-ups that fail' },
    );
    client.close();
    return fleet.stop;
  });

  /** Sends one request with a key on a separate connection. */
  async function send(key: string, path: string, body: object): Promise<Answer> {
    const client = createClient(key);
    const answer = await client.post(edge.port, path, body);
    client.close();
    return answer;
  }

  test('G5: every request of a cached key is accepted within 2 s', () => {
    expect(answers.length).toBeGreaterThan(2);
    for (const { status, milliseconds } of answers) {
      expect(status).toBe(201);
      expect(milliseconds).toBeLessThan(ANSWERED_WITHIN);
    }
  });

  test('G5: an uncached key is answered with 503 and Retry-After within 2 s', async () => {
    const answer = await send('pk_unknown', '/users/track', { events });
    expect(answer).toMatchObject({ status: 503, retryAfter: '1' });
    expect(answer.milliseconds).toBeLessThan(ANSWERED_WITHIN);
  });

  test('G5: a request that needs Postgres is answered with 503 and Retry-After within 2 s', async () => {
    const answer = await send(fleet.workspace.key, '/users/export/ids', { external_ids: ['nobody'] });
    expect(answer).toMatchObject({ status: 503, retryAfter: '1' });
    expect(answer.milliseconds).toBeLessThan(ANSWERED_WITHIN);
  });

  test('G5: a request with an unknown subscription group blocks no later request of the key', async () => {
    const { key } = fleet.workspace;
    const group = { subscription_group_id: randomUUID(), subscription_state: 'subscribed' };
    const unknown = { attributes: [{ external_id: 'a', subscription_groups: [group] }], events };
    for (const body of [unknown, { events }, unknown, { events }]) {
      const answer = await send(key, '/users/track', body);
      expect(answer.status).toBe(201);
      expect(answer.milliseconds).toBeLessThan(ANSWERED_WITHIN);
    }
  });

  test('/metrics still answers within 2 s, with the last known values', async () => {
    const response = await fetch(`http://127.0.0.1:${edge.port}/metrics`, {
      signal: linkSignals({ milliseconds: ANSWERED_WITHIN }).signal,
    });
    expect(response.status).toBe(200);
    expect(await response.text()).toMatch(/^penstock_queue_depth\{lane="lane-0"\} \d+$/m);
  });

  test('Postgres is queried again once it is back: a revoked key is rejected', async () => {
    await postgres.comeBack();
    await fleet.pool.query('update api_keys set revoked_at = now()');
    const refused = async () => (await send(fleet.workspace.key, '/users/track', { events })).status === 401;
    await waitUntil(refused, { what: 'the revoked key to be refused', deadline: 5000 });
  });
});

test('a request whose client leaves during the key lookup is logged, counted and applied once', async () => {
  const { fleet, postgres, edge } = await startScene();
  const { key } = await createWorkspace(fleet.pool, 'another');
  postgres.standStill();
  const socket = connect(edge.port, '127.0.0.1');
  const body = JSON.stringify({ events });
  const head = `Authorization: Bearer ${key}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}`;
  socket.write(`POST /users/track HTTP/1.1\r\nHost: a\r\n${head}\r\n\r\n${body}`);
  await waitUntil(postgres.isWaitedFor, { what: 'the look-up' });
  socket.destroy();
  // The web process has seen the end of that connection once it answers on a later one.
  await statusOf(edge.port, '/healthz');
  await postgres.comeBack();
  const lines = () => edge.log.filter(({ operation }) => operation === 'users.track');
  await waitUntil(() => lines().length > 0, { what: 'the line' });
  expect(lines()).toEqual([expect.objectContaining({ status: 201, accepted: 1 })]);
  const metrics = await (await fetch(`http://127.0.0.1:${edge.port}/metrics`)).text();
  expect(metrics).toContain('penstock_requests_total{operation="users.track",status="201"} 1');
  await fleet.stop();
});
