import path from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/platform/files.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { makeTriggers } from '../setup/make-triggers.ts';
import { createWorkspace, type TestWorkspace } from '../setup/workspace.ts';
import { type Backend, backends, eitherBackend, type Fleet, startFleet } from './fleet.ts';
import { createClient } from './keep-alive-client.ts';

const TIME = '2026-01-02T03:04:05.000Z';

/** Worker deaths after which the test gives up. */
const MAX_DEATHS = 12;

/** Makes a worker exit within the transaction that writes an event with the name `lethal`. */
async function makeLethal(fleet: Fleet): Promise<void> {
  await makeTriggers(fleet.pool, [
    `create function end_the_process() returns trigger language plpgsql as $$
    begin
      raise notice 'ends the process';
      return new;
    end $$`,
    `create trigger end_the_process before insert on events
      for each row when (new.name = 'lethal') execute function end_the_process()`,
  ]);
}

const env = { NODE_OPTIONS: `--require ${path.join(packageRoot, 'test/setup/ends-at-notice.cjs')}` };

const readLetters = (fleet: Fleet) =>
  fleet.pool.query<{ id: string; reason: string; object: { name: string } }>(
    'select id, reason, object from dead_letters',
  );

/**
 * Restarts a worker each time it ends, as a supervisor does, until `isOver`. @returns the number of deaths
 */
async function supervise(fleet: Fleet, isOver: () => Promise<boolean>): Promise<number> {
  for (let deaths = 0; ; deaths++) {
    // A worker may end before it is ready.
    const worker = await fleet.startWorker(env).catch(() => undefined);
    if (!worker) continue;
    let ended = false;
    void worker.exit.then(() => {
      ended = true;
    });
    await waitUntil(async () => ended || (await isOver()), {
      what: 'the end of a worker, or of its work',
      deadline: 60_000,
    });
    if (!ended || deaths === MAX_DEATHS) return deaths;
    await fleet.end(worker);
  }
}

const start = (backend: Backend, lanes: number) =>
  startFleet(backend, { edges: 1, workers: 0, env: { LANES: String(lanes) } });

async function send(fleet: Fleet, { key }: TestWorkspace, body: unknown) {
  const client = createClient(key);
  const { status } = await client.post(fleet.edges[0]!.port, '/users/track', body);
  client.close();
  expect(status).toBe(201);
}

const count = async (fleet: Fleet, what: string) =>
  Number((await fleet.pool.query(`select ${what} as count`)).rows[0].count);

/**
 * Checks whether all objects have an outcome: one is a dead letter, and the given number of events is stored.
 */
const isApplied = (fleet: Fleet, events: number) => async () =>
  (await count(fleet, '(select count(*) from events)')) === events &&
  (await readLetters(fleet)).rowCount === 1;

const lethalLetter = {
  reason: expect.stringMatching(/^ended the process: /),
  object: { name: 'lethal' },
};

test.each(backends)(
  'G4: an object that ends its worker becomes a dead letter, others apply; queue on %s',
  async (backend) => {
    const fleet = await start(backend, 1);
    const other = await createWorkspace(fleet.pool, 'other');
    await makeLethal(fleet);
    const users = Array.from({ length: 30 }, (_, user) => ({ external_id: `user-${user}` }));
    const request = (number: number, lethal?: number) => ({
      attributes: users.map((user) => ({ ...user, log: { add: [number] } })),
      events: users.map((user, position) => ({
        ...user,
        ...{ name: position === lethal ? 'lethal' : 'visited', time: TIME },
      })),
    });
    await send(fleet, fleet.workspace, request(0, 17));
    await send(fleet, other, request(0));
    await send(fleet, fleet.workspace, request(1));
    await send(fleet, other, request(1));
    expect(await supervise(fleet, isApplied(fleet, 4 * users.length - 1))).toBeLessThanOrEqual(4);
    expect((await readLetters(fleet)).rows).toMatchObject([lethalLetter]);
    const inOrder = `(select count(*) from profiles where custom_attributes -> 'log' = '[0, 1]')`;
    expect(await count(fleet, inOrder)).toBe(2 * users.length);
    await fleet.stop();
  },
  240_000,
);

test.each(eitherBackend)(
  'G4: an object among many envelopes and lanes ends at most four workers; queue on %s',
  async (backend) => {
    const fleet = await start(backend, 4);
    await makeLethal(fleet);
    const requests = 200;
    for (let number = 0; number < requests; number++) {
      const name = number === 120 ? 'lethal' : 'visited';
      await send(fleet, fleet.workspace, { events: [{ external_id: `user-${number}`, name, time: TIME }] });
    }
    expect(await supervise(fleet, isApplied(fleet, requests - 1))).toBeLessThanOrEqual(4);
    expect((await readLetters(fleet)).rows).toMatchObject([lethalLetter]);
    await fleet.stop();
  },
  240_000,
);
