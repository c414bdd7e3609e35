import { beforeAll, expect, onTestFinished, test } from 'vitest';
import { spawnPenstock } from '../admin/spawn-penstock.ts';
import { type Fleet, type Member, startFleet, statusOf } from '../guarantees/fleet.ts';
import { createClient } from '../guarantees/keep-alive-client.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { CONSOLE, surfacesOf } from './surfaces.ts';

const MAX_WAITING = 500;

/** Objects of a request. The first batch of a worker ends at 8,000 objects, so the queue drains in many batches. */
const OBJECTS = 75;

/** Number of workspaces that fill the queue together. */
const SENDERS = 40;

let fleet: Fleet;
let surfaces: ReturnType<typeof surfacesOf>;
beforeAll(async () => {
  const env = {
    ...CONSOLE,
    LANES: '1',
    MAX_WAITING_ENVELOPES: String(MAX_WAITING),
    MAX_STANDSTILL_MS: '2000',
    LOG_LEVEL: 'info',
  };
  fleet = await startFleet('redis', { edges: 1, workers: 2, env });
  surfaces = surfacesOf(fleet, await fleet.startBoard());
  await surfaces.signIn();
  return fleet.stop;
});

const silent = ({ pid }: Member) =>
  new RegExp(`^worker \\S+ \\(pid ${pid}\\) has sent no heartbeat for (?:\\d+ min )?\\d+ s`);

const everywhere = (pattern: RegExp) => surfaces.everywhere(pattern);

const nowhere = (pattern: RegExp) => surfaces.nowhere(pattern);

test('a killed and a frozen worker are listed after 20 s, and a replacement clears the first', async ({
  annotate,
}) => {
  const [killed, frozen] = fleet.workers as [Member, Member];
  await fleet.startWorker();
  await surfaces.untilNormal();
  const [from, within] = [Date.now(), 20];
  process.kill(frozen.pid, 'SIGSTOP');
  onTestFinished(() => void process.kill(frozen.pid, 'SIGCONT'));
  await fleet.end(killed);
  await Promise.all([killed, frozen].map((one) => surfaces.measure(silent(one), { from, within, annotate })));
  const startedAt = Date.now();
  await fleet.startWorker();
  await waitUntil(async () => !(await surfaces.console()).some((one) => silent(killed).test(one)), {
    ...{ what: 'the end of the entry', deadline: 5000 },
  });
  await annotate(`replacement: ${Date.now() - startedAt} ms from its spawn to the end of the entry`);
  await nowhere(silent(killed));
  await surfaces.ended(silent(killed));
  await everywhere(silent(frozen));
  process.kill(frozen.pid, 'SIGCONT');
  await surfaces.untilNormal();
}, 240_000);

test('a fleet whose only worker is frozen lists no worker after 20 s, and web stays ready', async ({
  annotate,
}) => {
  const [frozen, ...others] = fleet.workers as [Member, ...Member[]];
  for (const worker of others) await fleet.end(worker, 'SIGTERM');
  await surfaces.untilNormal();
  const from = Date.now();
  process.kill(frozen.pid, 'SIGSTOP');
  onTestFinished(() => void process.kill(frozen.pid, 'SIGCONT'));
  const sentence =
    /^No worker is running\. The last heartbeat came from worker \S+ \(pid \d+\), \d+ s ago\.$/;
  await surfaces.measure(sentence, { from, within: 20, annotate });
  expect(await statusOf(fleet.edges[0]!.port, '/readyz')).toBe(200);
  process.kill(frozen.pid, 'SIGCONT');
  await surfaces.ended(sentence);
  await surfaces.untilNormal();
}, 240_000);

test('penstock workers forget removes a process of another machine immediately', async () => {
  await fleet.pool.query(
    `insert into processes (id, name, host, pid, version, address, lanes, missing, objects, objects_per_second,
       resident_bytes, loop_busy, refused, refused_per_second, started_at, seen_at)
     values (gen_random_uuid(), 'worker', 'elsewhere', 7, '1.0.0', null, '{}', '{}', 5, 0, 1, 0, 0, 0,
       now() - interval '1 hour', now() - interval '8 minutes')`,
  );
  await everywhere(/^worker elsewhere \(pid 7\) has sent no heartbeat for 8 min/);
  const { code, stdout } = await spawnPenstock(['workers', 'forget', '--json'], fleet.env);
  expect([code, JSON.parse(stdout).forgotten]).toEqual([
    0,
    [expect.objectContaining({ name: 'worker', host: 'elsewhere', pid: 7 })],
  ]);
  await nowhere(/elsewhere/);
}, 120_000);

test('a missing worker is listed until one runs, and then the remaining time is shown', async ({
  annotate,
}) => {
  // A worker that died earlier must not be reported as the cause.
  for (const worker of [...fleet.workers]) await fleet.end(worker, 'SIGTERM');
  // Each sender uses a share of the queue that is too small to be throttled individually.
  const senders = await Promise.all(
    Array.from({ length: SENDERS }, (_, index) => createWorkspace(fleet.pool, `sender ${index}`)),
  );
  const clients = senders.map(({ key }) => createClient(key));
  const [web] = fleet.edges as [Member];
  let sent = 0;
  const post = () =>
    clients[sent++ % SENDERS]!.post(web.port, '/users/track', {
      attributes: Array.from({ length: OBJECTS }, (_, index) => ({
        external_id: `user ${index}`,
        seen: true,
      })),
    });
  let refused = false;
  while (!refused) refused = (await post()).status === 503;
  const fullAt = Date.now();
  let left = false;
  const knocking = (async () => {
    while (!left) {
      await post().catch(() => {});
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  })();
  const waiting = /^No worker is running\. 5\d\d jobs wait, the oldest for [\d. a-z]+\.$/;
  const refuses = /^web refuses requests \(queue_depth 5\d\d of 500\): \d[\d.]* requests\/s get 503/;
  try {
    // The log has the problem since the workers stopped, when no job waited yet.
    await surfaces.measure(waiting, { from: fullAt, within: 6, except: ['log'], annotate });
    await surfaces.until(
      'log',
      /^No worker is running\.(?: \d+ jobs? waits?, the oldest for [\d. a-z]+\.)?$/,
    );
    await surfaces.everywhere(refuses);
    const isNamed = () => web.log.some(({ msg }) => /no worker is running/.test(String(msg)));
    await waitUntil(isNamed, { what: 'the line of web' });
    // A heartbeat counts as old after 20 s. The sentence must not change then.
    for (const sentence of await surfaces.watch(25_000))
      expect(sentence).toMatch(
        /^No worker is running\. 5\d\d jobs wait, the oldest for [\d. a-z]+\.$|^web refuses/,
      );
    expect((await surfaces.console())[0]).toMatch(waiting);
    await nowhere(/heartbeat/);
  } finally {
    left = true;
    await knocking;
    for (const client of clients) client.close();
  }
  // Each batch then takes a quarter of a second longer. The statement stays below its limit of 400 ms.
  await fleet.pool.query(`
    create function wait_a_little() returns trigger language plpgsql as $$ begin perform pg_sleep(0.25); return null; end $$;
    create trigger slow before insert on ledger for each statement execute function wait_a_little()`);
  await fleet.startWorker();
  const from = Date.now();
  const draining = /^Draining: \d+ jobs?, about [\d. a-z]+ left\.$/;
  // The log has a line when the check begins and when it ends, not for each of its sentences.
  await surfaces.measure(draining, { from, within: 20, except: ['log'], annotate });
  await nowhere(/^No worker|has sent no heartbeat/);
  await fleet.pool.query('drop trigger slow on ledger');
  await surfaces.untilNormal();
  await surfaces.ended(/^Draining: |^The workers are behind: /);
}, 300_000);
