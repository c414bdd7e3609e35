import { setTimeout as sleep } from 'node:timers/promises';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { joinInstallation } from '../../src/queue/installation.ts';
import { laneOf } from '../../src/queue/lanes.ts';
import { lockLanes, presentMembers, setLanes } from '../../src/store/installation.ts';
import { expectRefusal, type PenstockOn, penstockOn } from '../admin/penstock.ts';
import { commit, createInstallation, failedEvent, type Installation, log } from '../board/installation.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { isLong } from '../setup/length.ts';
import { leasePort } from '../setup/ports.ts';
import { startProcess } from '../setup/processes.ts';

const files = {
  web: 'dist/src/web.js',
  worker: 'dist/workers/worker.js',
  board: 'dist/src/board.js',
  sync: 'dist/workers/sync.js',
};

describe.each(['redis', 'postgres'] as const)('queue on %s', (kind) => {
  /** An installation with four lanes. */
  let installation: Installation;
  let on: PenstockOn;
  beforeAll(async () => {
    installation = await createInstallation(kind);
    const { REDIS_URL } = installation.env;
    on = penstockOn(installation.env.DATABASE_URL, REDIS_URL ? { REDIS_URL } : {});
  });
  afterAll(() => installation.stop());

  const join = (name: string, lanes = 4, exit = () => {}) =>
    joinInstallation({
      ...{ name, config: { LANES: lanes }, pool: installation.database.pool, log, exit },
      connection: installation.connection,
    });

  const show = () => on.json('queue show') as Promise<{ lanes: number | null; processes: object[] }>;

  test('the number of lanes is unknown and cannot be changed until a process has run', async () => {
    expect(await show()).toMatchObject({ lanes: null, objects: 0, named_elsewhere: 0, processes: [] });
    expect((await on.run('queue show')).stdout).toMatch(/^objects named in more than one way +0$/m);
    expectRefusal(await on.run('queue set-lanes 2'), 'no process has run yet');
  });

  test('G3: a process with another number of lanes than its installation exits and names both', async () => {
    const member = await join('web');
    expect(await show()).toMatchObject({ lanes: 4, processes: [{ name: 'web', pid: process.pid }] });
    // The number is stored in Postgres, even with the queue in Redis.
    const started = isLong || kind === 'redis' ? Object.entries(files) : [['web', files.web] as const];
    for (const [name, file] of started) {
      const { env } = installation;
      const ports = { PORT: String(await leasePort()), WORKER_PORT: '0', SYNC_PORT: '0' };
      const other = startProcess(file, { ...env, ...ports, LANES: '1' });
      expect(await other.exit).toMatchObject({ code: 1 });
      const logText = other.log.map(({ text }) => text).join('\n');
      expect(logText).toContain(`${name}: wrong setting: LANES is 1, and this installation has 4;`);
    }
    await member.stop();
    expect(await show()).toMatchObject({ lanes: 4, objects: 0, named_elsewhere: 0, processes: [] });
  });

  test('G3: the number of lanes is changed only if every lane is empty and no process runs', async () => {
    const member = await join('worker');
    const concurrent = await on.run('queue set-lanes 2 --wait 1');
    expect(concurrent).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/ is still 4: worker .* runs[^;]*$/),
    });
    await installation.producer.add([{ lane: 3, id: uuidv7(), envelope: { requests: [], objects: [] } }]);
    const inVain = await on.run('queue set-lanes 2 --wait 1');
    expect(inVain.code).toBe(1);
    expect(inVain.stderr).toMatch(
      /error: the number of lanes is still 4: worker .* runs.*; the lanes still hold 1 jobs/,
    );
    const changing = on.run('queue set-lanes 2');
    let changed = false;
    void changing.then(() => {
      changed = true;
    });
    await sleep(1500);
    expect(changed).toBe(false);
    for (const queue of installation.laneQueues) await queue.drain();
    await member.stop();
    expect(await changing).toMatchObject({ code: 0, stdout: expect.stringContaining('LANES=2') });
    expect(await show()).toMatchObject({ lanes: 2 });
    await expect(join('web', 4)).rejects.toThrow('LANES is 4, and this installation has 2');
    expect(await on.json('queue set-lanes 4')).toEqual({ lanes: 4, before: 2 });
  });

  test('G3: a process that starts during a change of the lanes waits and then refuses to run', async () => {
    const { pool } = installation.database;
    const changing = await pool.connect();
    let joining: Promise<unknown> | undefined;
    try {
      // The command holds this lock between its check of running processes and the change.
      await changing.query('begin');
      await lockLanes(changing);
      expect(await presentMembers(pool)).toEqual([]);
      joining = join('web', 4).catch((error: Error) => error.message);
      const waits =
        "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%into members%'";
      await waitUntil(async () => (await pool.query(waits)).rowCount! > 0, { what: 'the process to wait' });
      await setLanes(changing, 2);
      await changing.query('commit');
    } finally {
      changing.release(true);
    }
    expect(await joining).toContain('LANES is 4, and this installation has 2');
    expect(await show()).toMatchObject({ lanes: 2, processes: [] });
    await pool.query('update installation set lanes = 4');
  });

  test('a change of the lanes fails at once if lanes hold jobs and no process runs', async () => {
    await installation.producer.add([{ lane: 3, id: uuidv7(), envelope: { requests: [], objects: [] } }]);
    expectRefusal(await on.run('queue set-lanes 2'), 'still 4: the lanes still hold 1 jobs', 'LANES=4');
    for (const queue of installation.laneQueues) await queue.drain();
  });

  test('G3: a process that slept during a change of the number of lanes exits', async () => {
    let exits = 0;
    const member = await join('web', 4, () => exits++);
    await installation.database.pool.query('update installation set lanes = 5');
    await waitUntil(() => exits > 0, { what: 'the process to end' });
    await installation.database.pool.query('update installation set lanes = 4');
    await member.stop();
  });

  test("G3: a replay at the command line uses the installation's number of lanes", async () => {
    const deadLetter = failedEvent();
    const lane = laneOf(deadLetter.workspaceId, `x:user-${deadLetter.id}`, 4);
    await commit(installation.database, deadLetter);
    // The command's own LANES is 1.
    await on.json(`dead-letters replay ${deadLetter.id}`);
    const held = await installation.envelopes();
    expect(held.map(({ lane, envelope }) => [lane, envelope.replay])).toEqual([[lane, true]]);
    expect(await show()).toMatchObject({ lanes: 4, objects: 0, named_elsewhere: 0, processes: [] });
  });
});
