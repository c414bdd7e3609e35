import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Fleet, startFleet } from '../guarantees/fleet.ts';
import { type ApiAnswer, send } from '../setup/api.ts';
import { waitUntil } from '../setup/fixtures.ts';

let fleet: Fleet;
beforeAll(async () => {
  // A workspace may hold half of them: two bodies of 400 kB.
  const env = { MAX_BODY_BYTES: '500000', MAX_PENDING_BYTES: '1800000', QUEUE_TIMEOUT_MS: '30000' };
  fleet = await startFleet('postgres', { edges: 1, workers: 0, env });
});
afterAll(() => fleet.stop());

/** Builds a body with 75 objects in 400 kB. */
function body(user: number): string {
  const texts = Object.fromEntries(Array.from({ length: 21 }, (_, n) => [`text_${n}`, 'x'.repeat(240)]));
  return JSON.stringify({ attributes: Array(75).fill({ external_id: `u${user}`, ...texts }) });
}

test.each([
  ['as they are', (user: number) => ({ raw: body(user) })],
  ['compressed', (user: number) => ({ raw: gzipSync(body(user)), headers: { 'content-encoding': 'gzip' } })],
])(
  'G5: with half of MAX_PENDING_BYTES waiting for the queue, requests sent %s get 503 at once',
  async (_, request) => {
    const { pool, edges, workspace } = fleet;
    const blocker = await pool.connect();
    await blocker.query('begin; lock table bullmq.job in exclusive mode');
    const answers: ApiAnswer[] = [];
    const sent = [1, 2, 3, 4, 5].map(async (user) => {
      const { port } = edges[0]!;
      answers.push(await send(port, { path: '/users/track', key: workspace.key, ...request(user) }));
    });
    // Two requests of 400 kB are held. All others must be answered while the table is locked.
    await waitUntil(() => answers.length >= 3, { what: 'three answers', deadline: 10_000 });
    for (const { status, headers, body } of answers) {
      const refusal = { message: 'Service Unavailable', code: 'workspace_over_share' };
      expect({ status, body }).toMatchObject({ status: 503, body: refusal });
      expect(headers.get('retry-after')).toBe('1');
    }
    await blocker.query('rollback');
    blocker.release();
    await Promise.all(sent);
    expect(answers.map(({ status }) => status)).toEqual([503, 503, 503, 201, 201]);
  },
);
