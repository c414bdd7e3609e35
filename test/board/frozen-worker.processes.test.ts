import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, expect, test } from 'vitest';
import { freePort } from '../../src/embedded/address.ts';
import { type Fleet, startFleet } from '../guarantees/fleet.ts';
import { createClient } from '../guarantees/keep-alive-client.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { startProcess } from '../setup/processes.ts';
import { createVisitor, type Visitor } from './browser-session.ts';

const password = 'correct horse';

let fleet: Fleet;
let visitor: Visitor;
beforeAll(async () => {
  fleet = await startFleet('redis', { edges: 1, workers: 1 });
  const port = await freePort();
  const env = { ...fleet.env, BOARD_PORT: String(port), BOARD_PASSWORD: password };
  startProcess('dist/src/board.js', env);
  const url = `http://127.0.0.1:${port}`;
  await waitUntil(async () => (await fetch(`${url}/healthz`)).ok, { what: 'the console' });
  visitor = createVisitor({ url });
  await visitor.signIn('admin', password);
  return fleet.stop;
});

/** Milliseconds between two looks: a page of the console is more work than a condition usually is. */
const LOOK = 250;

/** What stands on top of the first page. */
async function sentence(): Promise<string> {
  await sleep(LOOK);
  const text = await (await visitor.get('/', { accept: 'text/html' })).text();
  return /class="verdict \w+"[^>]*><p><strong>(.*?)<\/strong>/.exec(text)![1]!;
}

test('the only worker freezes while jobs wait: the first page names it, for how long, and what waits; then all is well', async () => {
  const [worker] = fleet.workers;
  await waitUntil(async () => (await sentence()).startsWith('All is well'), {
    what: 'the fleet to be heard',
  });
  process.kill(worker!.pid, 'SIGSTOP');
  const client = createClient(fleet.workspace.key);
  for (let n = 0; n < 12; n++) {
    const { status } = await client.post(fleet.edges[0]!.port, '/users/track', {
      attributes: [{ external_id: `user-${n}`, first_name: 'Ada' }],
    });
    expect(status).toBe(201);
  }
  client.close();
  const said = await waitUntil<string | undefined>(
    async () => {
      const found = await sentence();
      return found.startsWith('The only worker') ? found : undefined;
    },
    { what: 'the sentence' },
  );
  const [, pid, silent, jobs, oldest] =
    /^The only worker \S+ \(pid (\d+)\) has been silent for (\d+) s: (\d+) jobs? waits? in lanes? [\d, and to]+, the oldest for (\d+) s\.$/
      .exec(said)!
      .map(Number);
  expect([pid, jobs! > 0 && jobs! <= 12]).toEqual([worker!.pid, true]);
  expect(silent).toBeGreaterThanOrEqual(12);
  expect(oldest).toBeGreaterThanOrEqual(10);
  process.kill(worker!.pid, 'SIGCONT');
  await waitUntil(async () => (await sentence()).startsWith('All is well'), { what: 'the way back' });
}, 120_000);
