import { rmSync } from 'node:fs';
import path from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { expectRefusal, penstock } from '../admin/penstock.ts';
import { createVisitor, type Visitor } from '../board/browser-session.ts';
import { startRedis, waitUntil } from '../setup/fixtures.ts';
import { leasePort } from '../setup/ports.ts';
import { startProcess, type TestProcess } from '../setup/processes.ts';
import { type Fleet, type Member, startFleet } from './fleet.ts';
import { createClient } from './keep-alive-client.ts';

const password = 'correct horse';

let fleet: Fleet;
let board: TestProcess;
let boardPort: number;
let visitor: Visitor;
beforeAll(async () => {
  fleet = await startFleet('redis', { edges: 1, workers: 1, syncs: 1 });
  await startBoard();
  return fleet.stop;
});

async function startBoard(): Promise<void> {
  boardPort = await leasePort();
  const env = { ...fleet.env, BOARD_PORT: String(boardPort), BOARD_PASSWORD: password };
  board = startProcess('dist/src/board.js', env);
  const url = `http://127.0.0.1:${boardPort}`;
  await waitUntil(async () => (await fetch(`${url}/healthz`)).ok, { what: 'the dashboard' });
  visitor = createVisitor({ url });
  await visitor.signIn('admin', password);
}

const members = (): Member[] => [...fleet.edges, ...fleet.workers, ...fleet.syncs];
const page = async (port: number, name: string) => (await fetch(`http://127.0.0.1:${port}/${name}`)).text();
const dashboard = async () => (await visitor.get('/', { accept: 'text/html' })).text();

/** Returns whether each process reports a loss: in /readyz, in /metrics and at the top of the console. */
async function saying(): Promise<boolean[]> {
  const printed = await Promise.all(
    [...members().map(({ port }) => port), boardPort].flatMap((port) => [
      page(port, 'readyz').then((text) => JSON.parse(text).loss !== undefined),
      page(port, 'metrics').then((text) => /^penstock_queue_losses_unconfirmed [1-9]/m.test(text)),
    ]),
  );
  return [...printed, (await dashboard()).includes('Redis came back')];
}

async function accept(): Promise<void> {
  const client = createClient(fleet.workspace.key);
  const attributes = [{ external_id: 'ada', first_name: 'Ada' }];
  const { status } = await client.post(fleet.edges[0]!.port, '/users/track', { attributes });
  expect(status).toBe(201);
  client.close();
}

test('no loss is reported without a loss', async () => {
  await accept();
  expect(await saying()).not.toContain(true);
});

test('after Redis has come back empty, every process reports the loss until it is acknowledged', async () => {
  for (const worker of [...fleet.workers]) await fleet.end(worker);
  await accept();
  for (const member of members()) await fleet.end(member);
  board.kill('SIGKILL');
  await board.exit;
  const redis = fleet.redis!;
  await redis.kill();
  rmSync(path.join(redis.dir, 'appendonlydir'), { recursive: true });
  await startRedis({ port: redis.port, dir: redis.dir });

  await fleet.startWorker();
  await fleet.startEdge();
  await fleet.startSync();
  await startBoard();
  await waitUntil(async () => (await saying()).every(Boolean), { what: 'every process to say it' });
  for (const { log } of [...members(), board])
    expect(log.filter(({ msg }) => /^Redis came back empty/.test(String(msg)))).toHaveLength(1);
  const spelled = ['losses', 'latest', 'found', 'accepted_from', 'accepted_until'];
  for (const port of [...members().map(({ port }) => port), boardPort])
    expect(Object.keys(JSON.parse(await page(port, 'readyz')).loss)).toEqual(spelled);
  for (const { log } of [...members(), board])
    expect(log.find(({ msg }) => /^Redis came back empty/.test(String(msg)))).toHaveProperty(
      'accepted_until',
    );
  // The fleet accepts later requests nevertheless.
  await accept();

  const env = { DATABASE_URL: fleet.env.DATABASE_URL! };
  const { losses } = JSON.parse((await penstock(['queue', 'losses', '--json'], env)).stdout);
  expect(losses).toEqual([
    {
      ...{ number: 1, found: 'empty', accepted_from: expect.any(String), accepted_until: expect.any(String) },
      ...{ additions_known: expect.any(Number), additions_found: expect.any(Number) },
      ...{ noticed_by: expect.any(String), confirmed_at: null },
    },
  ]);
  expectRefusal(await penstock(['queue', 'confirm-loss', '2'], env), 'no loss has the number 2');
  expect((await penstock(['queue', 'confirm-loss', '1'], env)).code).toBe(0);
  await waitUntil(async () => !(await saying()).includes(true), { what: 'silence' });
});
