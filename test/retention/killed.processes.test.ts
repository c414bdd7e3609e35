import { readdirSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type { ObjectStore } from '../../src/object-store/object-store.ts';
import { eraseDeleted } from '../../src/retention/restore.ts';
import { runRetention } from '../../src/retention/run.ts';
import { readPeaks } from '../../tools/bench/peak-memory.ts';
import { remove } from '../identity/objects.ts';
import { leaveBehind, temporaryFolder } from '../setup/left-behind.ts';
import { lengthOf } from '../setup/length.ts';
import { askEverywhere, makeGate, passGate } from '../setup/nodes.ts';
import { startProcess } from '../setup/processes.ts';
import { waitUntil } from '../setup/wait-until.ts';
import { makeTriggers } from '../workers/batch.ts';
import * as at from './scene.ts';
import { begin, content, end, fill, inFolder, nextMonth, other, restore, withStore } from './scene.ts';

/** Advisory lock at which a statement of the process under test waits until the process is killed. */
const HELD = 4711;

let folder: string;
let store: ObjectStore;

beforeAll(async () => {
  await begin();
  await makeTriggers(at.pool, [
    `create function hold_here() returns trigger language plpgsql as
       'begin ${passGate(HELD)} return coalesce(new, old); end'`,
  ]);
});
afterAll(end);
beforeEach(async () => {
  await nextMonth();
  folder = temporaryFolder('penstock-archive-');
  store = await inFolder(folder);
});

const start = (args: string[], env: Record<string, string> = {}) =>
  startProcess('dist/src/cli.js', { DATABASE_URL: at.scene.url, ARCHIVE_URL: folder, ...env }, [
    'retention',
    ...args,
  ]);

type Killed = ReturnType<typeof start>;

async function kill(process: Killed): Promise<void> {
  process.kill('SIGKILL');
  expect((await process.exit).signal).toBe('SIGKILL');
}

/** Starts the command, holds it at this statement before the row is written, and calls `work` meanwhile. */
async function heldAt(
  statement: string,
  args: string[],
  work: (held: Killed) => Promise<void> | void,
): Promise<Killed> {
  const table = /\bon (\w+)/.exec(statement)![1]!;
  await makeTriggers(at.pool, [`create trigger held before ${statement} execute function hold_here()`]);
  const gate = await makeGate(at.scene.url, HELD);
  await gate.shut();
  const held = start(args);
  try {
    await waitUntil(gate.isWaitedFor, { what: `the process at: ${statement}` });
    await work(held);
  } catch (failed) {
    // End the process, so that the next test does not wait for it.
    held.kill('SIGKILL');
    throw failed;
  } finally {
    // The server still executes statements of the dead process, but has received no COMMIT.
    await gate.open();
    await gate.stop();
    await held.exit;
    await isFree();
    await makeTriggers(at.pool, [`drop trigger held on ${table}`]);
  }
  return held;
}

const killAt = (statement: string, args: string[]) => heldAt(statement, args, kill);

/** Waits until the sessions of the dead process have ended. */
async function isFree(): Promise<void> {
  const held = `select from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())`;
  await waitUntil(async () => (await askEverywhere(at.scene.url, held)).length === 0, {
    what: 'the end of its sessions',
  });
}

/** Returns the objects in the index and in the archive. */
async function objects(): Promise<[string[], string[]]> {
  const indexed = await at.scene.rows(
    'select object from archive_files where object is not null order by object',
  );
  return [indexed.map(({ object }) => object), (await store.list('')).objects.map(({ key }) => key)];
}

/** Expects a second run to finish the rest, and the archive to have every row once. */
async function expectWhole(before: string[]): Promise<void> {
  expect(await runRetention(withStore(store), 'archive')).toMatchObject({ failed: 0 });
  expect(await content()).toEqual([]);
  const [indexed, result] = await objects();
  expect(result).toEqual(indexed);
  const [{ rows }] = await at.scene.rows(
    "select sum(rows)::integer as rows from archive_files where state = 'removed'",
  );
  expect(rows).toBe(before.length);
  expect(await restore(store)).toMatchObject({ restored: before.length, present: 0 });
  expect(await content()).toEqual(before);
}

const inState = (state: string) => `on archive_files for each row when (new.state = '${state}')`;

test.each([
  ['has noted a file that it is to write', `insert ${inState('archiving')}`],
  ['has put a file and read it back', `update ${inState('verified')}`],
  ['drops a partition that it has detached', `update ${inState('removed')}`],
])('a run that is killed when it %s: the next one loses and duplicates no row', async (_when, statement) => {
  await fill(20);
  const before = await content();
  await killAt(statement, ['run']);
  expect(await content()).toHaveLength(statement.includes('removed') ? 3 : before.length);
  await expectWhole(before);
});

test('a run that is killed while it puts a file loses no row, and TMPDIR stays empty', async () => {
  await fill(20);
  const before = await content();
  let arrived = () => {};
  const putting = new Promise<void>((resolve) => {
    arrived = resolve;
  });
  const server = createServer((request) => void request.resume().on('data', arrived));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  leaveBehind(() => {
    server.closeAllConnections();
    server.close();
  });
  const killed = start(['run'], {
    ...{ ARCHIVE_URL: 's3://bucket', S3_REGION: 'eu', S3_ACCESS_KEY_ID: 'a', S3_SECRET_ACCESS_KEY: 'b' },
    ...{ S3_ENDPOINT: `http://127.0.0.1:${(server.address() as AddressInfo).port}` },
    ALLOWED_NETWORKS: '127.0.0.0/8',
  });
  await putting;
  const scratch = () =>
    readdirSync(tmpdir()).filter((name) => name.includes(`retention-`) && name.includes(`-${killed.pid}-`));
  expect(scratch()).toHaveLength(1);
  await kill(killed);
  await isFree();
  expect(await at.states()).toEqual(['archiving']);
  await expectWhole(before);
  expect(scratch()).toEqual([]);
});

test('a run that is killed while it waits for the lock of a detach leaves all rows', async () => {
  await fill(20);
  const before = await content();
  const reader = await at.pool.connect();
  await reader.query('begin');
  await reader.query('select from events limit 1');
  const killed = start(['run']);
  const tries = "select from pg_stat_activity where query like 'alter table events detach%'";
  await waitUntil(async () => (await at.scene.rows(tries)).length > 0, { what: 'a detach', fleeting: true });
  await kill(killed);
  await reader.query('commit');
  reader.release();
  await isFree();
  expect(await content()).toEqual(before);
  await expectWhole(before);
});

test('a run killed while it deletes row by row is finished by the next one, and archived once', async () => {
  await fill(700);
  await fill(1, { of: other, from: 900 });
  await at.setPolicy(other, null);
  const before = await content();
  // The row is in the second page of five hundred.
  await killAt(`delete on events for each row when ((old.properties->>'n')::integer = 600)`, ['run']);
  expect((await content()).length).toBeLessThan(before.length);
  await expectWhole(before);
  expect(await content(other)).toHaveLength(2);
});

test('a restore that is killed is resumed by the next one, row by row', async () => {
  await fill(700);
  const before = await content();
  await runRetention(withStore(store), 'archive');
  const args = ['restore', '--workspace', at.workspaceId, '--month', at.month];
  await killAt(`insert on events for each row when ((new.properties->>'n')::integer = 600)`, args);
  const back = (await content()).length;
  expect(back).toBeGreaterThan(0);
  expect(back).toBeLessThan(before.length);
  expect(await restore(store)).toMatchObject({ restored: before.length - back, present: back });
  expect(await content()).toEqual(before);
});

test('an erasure killed while it replaces a file leaves no deleted user in the archive', async () => {
  await fill(20);
  await fill(5, { owner: 'bob', from: 100 });
  await runRetention(withStore(store), 'archive');
  await at.scene.apply([remove('bob')]);
  await at.scene.cleanUp();
  await killAt(`update ${inState('replaced')}`, ['erase', '--workspace', at.workspaceId]);
  expect(await at.states()).toContain('archiving');
  expect(await eraseDeleted(withStore(store), { days: 0 })).toMatchObject({ erased: 8, failed: 0 });
  const [indexed, actual] = await objects();
  expect(actual).toEqual(indexed);
  expect(actual).toHaveLength(2);
  expect(await restore(store)).toMatchObject({ restored: 23, left_out: 0 });
});

test('a month of many rows is archived in bounded memory', async () => {
  const rows = lengthOf({ short: 20_000, long: 100_000 });
  await fill(rows);
  let peak = 0;
  const { exit, log } = await heldAt(`update ${inState('removed')}`, ['run', '--json'], ({ pid }) => {
    peak = readPeaks({ retention: pid }).rss_mb_retention!;
  });
  const { code } = await exit;
  const logText = log.map(({ text }) => text).join('');
  expect({ code, logText }).toEqual({
    code: 0,
    logText: expect.stringContaining(`"archived": ${rows + 3},`),
  });
  expect(peak).toBeLessThan(400);
});
