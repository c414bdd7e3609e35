import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, test } from 'vitest';
import { startRedis } from '../setup/fixtures.ts';
import { type Effects, expectInOrder, expectNoneLost, expectNoneTwice, settled } from './effects.ts';
import { type Fleet, startFleet } from './fleet.ts';
import { type Answer, createClient } from './keep-alive-client.ts';
import { type Logged, startTraffic } from './traffic.ts';

/** Milliseconds in which a request is refused while the queue is away. */
const REFUSED_WITHIN = 1000;

describe('Redis goes away under load and comes back', () => {
  let log: Logged[];
  let effects: Effects;
  let fallen: string[];
  const whileDead: Answer[] = [];
  const whileFrozen: Answer[] = [];

  beforeAll(async () => {
    const fleet = await startFleet('redis', { env: { QUEUE_TIMEOUT_MS: '700' } });
    const redis = fleet.redis!;
    const traffic = startTraffic(fleet);
    await traffic.more(50);

    await redis.kill();
    whileDead.push(...(await knock(fleet)));
    const { pid } = await startRedis({ port: redis.port, dir: redis.dir });
    await traffic.more(50);

    process.kill(pid, 'SIGSTOP');
    whileFrozen.push(...(await knock(fleet)));
    process.kill(pid, 'SIGCONT');
    await traffic.more(50);

    log = await traffic.stop();
    effects = await settled(fleet, log);
    fallen = await fleet.fallen();
    return fleet.stop;
  });

  /**
   * Asks every edge a few times, one request after the other. What is refused while Redis is frozen may still
   * take effect once it thaws: at most once, which the tags tell.
   */
  async function knock({ edges, workspace }: Fleet): Promise<Answer[]> {
    const client = createClient(workspace.key);
    const event = () => ({
      external_id: 'nobody',
      name: 'knocked',
      time: '2026-01-02T03:04:05Z',
      properties: { tag: randomUUID() },
    });
    const answers: Answer[] = [];
    for (let round = 0; round < 3; round++) {
      for (const { port } of edges)
        answers.push(await client.post(port, '/users/track', { events: [event()] }));
    }
    client.close();
    return answers;
  }

  test.each([
    ['dead', whileDead],
    ['frozen', whileFrozen],
  ])('G5: while Redis is %s, every request is answered with 503 and Retry-After within 1 s', (_, answers) => {
    expect(answers.length).toBeGreaterThan(0);
    for (const { status, retryAfter, body, milliseconds } of answers) {
      expect({ status, retryAfter, body }).toMatchObject({
        status: 503,
        retryAfter: '1',
        body: { message: 'Service Unavailable' },
      });
      expect(milliseconds).toBeLessThan(REFUSED_WITHIN);
    }
  });

  test('G5: no request is answered with anything but 201 and 503', () => {
    expect(new Set(log.map(({ status }) => status))).toEqual(new Set([201, 503]));
  });

  test('work resumes without a restart of ours', () => expect(fallen).toEqual([]));

  test('G1: every acknowledged object is applied', () => expectNoneLost(log, effects));

  test('G2: no object is applied twice', () => expectNoneTwice(log, effects));

  test("G3: each user's acknowledged operations take effect in their order", () =>
    expectInOrder(log, effects));
});
