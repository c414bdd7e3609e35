import { afterAll, beforeAll, expect, test } from 'vitest';
import { errorBodyOf } from '../../src/errors.ts';
import { type Fleet, startFleet } from '../guarantees/fleet.ts';
import { waitUntil } from '../setup/fixtures.ts';

const METRICS_TOKEN = 'a-token-for-the-metrics-alone';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await startFleet('postgres', { edges: 1, workers: 1, syncs: 1, env: { METRICS_TOKEN } });
});
afterAll(() => fleet?.stop());

async function send(port: number, page: string, authorization?: string) {
  const headers = authorization === undefined ? {} : { authorization };
  const response = await fetch(`http://127.0.0.1:${port}${page}`, { headers });
  return { status: response.status, headers: response.headers, text: await response.text() };
}

test.each(['edges', 'workers', 'syncs'] as const)(
  'with METRICS_TOKEN, /metrics of the %s requires the token',
  async (members) => {
    const { port } = fleet[members][0]!;
    for (const authorization of [
      undefined,
      '',
      METRICS_TOKEN,
      `Basic ${METRICS_TOKEN}`,
      'Bearer',
      `Bearer ${METRICS_TOKEN}x`,
      `Bearer ${METRICS_TOKEN.slice(0, -1)}`,
      `Bearer ${fleet.workspace.key}`,
    ]) {
      const { status, headers, text } = await send(port, '/metrics', authorization);
      expect([authorization, status]).toEqual([authorization, 401]);
      expect(headers.get('www-authenticate')).toBe('Bearer');
      expect(JSON.parse(text)).toEqual(
        members === 'edges' ? errorBodyOf('metricsToken') : { message: 'Unauthorized' },
      );
    }
    for (const scheme of ['Bearer', 'bearer']) {
      const { status, text } = await send(port, '/metrics', `${scheme} ${METRICS_TOKEN}`);
      expect(status).toBe(200);
      expect(text).toContain('# TYPE process_resident_memory_bytes gauge');
    }
  },
);

test("with METRICS_TOKEN, the list of the fleet's processes requires the token", async () => {
  const { port } = fleet.edges[0]!;
  expect((await send(port, '/metrics/targets')).status).toBe(401);
  const named = async () => {
    const { text } = await send(port, '/metrics/targets', `Bearer ${METRICS_TOKEN}`);
    return (JSON.parse(text) as { labels: { process: string } }[]).map(({ labels }) => labels.process).sort();
  };
  await expect.poll(named, { timeout: 20_000 }).toEqual(['sync', 'web', 'worker']);
});

test('with METRICS_TOKEN, /healthz and /readyz need no token, for load balancers', async () => {
  for (const { port } of [...fleet.edges, ...fleet.workers, ...fleet.syncs]) {
    expect((await send(port, '/healthz')).status).toBe(200);
    const isReady = async () => (await send(port, '/readyz')).status === 200;
    await waitUntil(isReady, { what: 'readiness' });
  }
});
