import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readEmbeddedUrl } from '../../src/embedded/address.ts';
import { packageRoot } from '../../src/platform/files.ts';
import type { Json } from '../../src/profile/json.ts';
import { zipOf } from '../import/scene.ts';
import { send } from '../setup/api.ts';
import { temporaryFolder, waitUntil } from '../setup/fixtures.ts';
import { endStarted, settingsWithCluster, startAndWait } from '../setup/npm-start.ts';
import { pathWithNpx } from '../setup/npx.ts';

/**
 * Runs only in the long form. test/import, test/export/round-trip and test/edge/proxy.processes.test.ts cover
 * the commands;
 * this test checks that the page describes them correctly.
 */
const THEIR_KEY = 'a-key-that-clients-have-already-0123456789';
const THEIR_HOST = 'https://rest.example.com';

/** Shell blocks of docs/migration.md, by the number of their step; 7 is the way back. */
function blocksOf(): string[][] {
  const text = readFileSync(path.join(packageRoot, 'docs/migration.md'), 'utf8');
  const steps = text.split(/^## /m).slice(1);
  return steps.map((step) => [...step.matchAll(/^```sh\n(.*?)^```$/gms)].map(([, block]) => block!));
}

/** The other service, which accepts every request. */
let upstream: Server;
const requested: string[] = [];
let folder: string;
let searchPath: string;
let env: Awaited<ReturnType<typeof settingsWithCluster>>;

beforeAll(async () => {
  upstream = createServer((request, response) => {
    requested.push(request.url ?? '');
    request.resume().on('end', () => {
      response.writeHead(201, { 'Content-Type': 'application/json' });
      response.end('{"message":"success"}');
    });
  });
  await new Promise<void>((resolve) => upstream.listen(0, '127.0.0.1', resolve));
  folder = temporaryFolder('penstock-migration-');
  env = await settingsWithCluster();
  searchPath = pathWithNpx(folder);
});
afterAll(async () => {
  await endStarted();
  upstream.closeAllConnections();
  upstream.close();
});

const inWords = (block: string) =>
  block.replaceAll(THEIR_HOST, `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`);

/** Runs a block unchanged; each of its lines has to succeed. */
function run(block: string): Promise<string> {
  const surroundings = { PATH: searchPath, HOME: folder, ...env };
  return new Promise((resolve, reject) => {
    execFile(
      '/bin/sh',
      ['-e', '-c', inWords(block)],
      { cwd: folder, env: surroundings },
      (error, out, problem) => {
        if (error) reject(new Error(`${block}\n${out}\n${problem}`));
        else resolve(out);
      },
    );
  });
}

/** Runs a block that starts everything, and replaces the running processes. */
async function start(block: string): Promise<void> {
  const [, upstreamUrl] = /^(?:PROXY_UPSTREAM=(\S+) )?npm start\n$/.exec(inWords(block)) ?? ['', 'unread'];
  expect(upstreamUrl).not.toBe('unread');
  await endStarted();
  await startAndWait({ ...env, ...(upstreamUrl !== undefined && { PROXY_UPSTREAM: upstreamUrl }) });
}

const call = (at: string, json: Json) => send(Number(env.PORT), { path: at, key: THEIR_KEY, json });
const named = (external_id: string) => ({
  attributes: [{ external_id, first_name: external_id, plan: 'pro' }],
});

/** Waits until the statement returns the count. */
async function waitForCount(statement: string, count: number): Promise<void> {
  const client = new pg.Client({ connectionString: readEmbeddedUrl(env.DATA_DIR)! });
  await client.connect();
  try {
    await waitUntil(async () => Number((await client.query(statement)).rows[0].count) === count, {
      what: `${statement}: ${count}`,
    });
  } finally {
    await client.end();
  }
}

const theirUser = (external_id: string, more: object = {}) => ({
  ...{ external_id, braze_id: `b-${external_id}`, first_name: external_id },
  ...{ custom_attributes: { plan: 'pro' }, ...more },
});
const lines = (rows: readonly object[]) => rows.map((row) => `${JSON.stringify(row)}\n`).join('');
const archive = (users: readonly object[]) => zipOf([{ name: '1.txt', content: lines(users) }]);

test('every block of the page runs in order, and users are where each step says', async () => {
  const [prepare, proxy, backfill, compare, cutOver, goBack, moveOut] = blocksOf();
  expect(
    [prepare, proxy, backfill, compare, cutOver, goBack, moveOut].map((blocks) => blocks?.length),
  ).toEqual(Array(7).fill(1));
  const put = (name: string, content: string | Buffer) => writeFileSync(path.join(folder, name), content);

  await startAndWait(env);
  put('their-key.txt', THEIR_KEY);
  await run(prepare![0]!);
  put('segment-export.zip', archive([theirUser('ada'), theirUser('bob')]));

  await start(proxy![0]!);
  const carol = { external_id: 'carol', email: 'carol@example.com', email_subscribe: 'opted_in' };
  const bought = { product_id: 'sku', currency: 'USD', price: 5, time: '2026-01-01T00:00:00Z' };
  const tracked = await call('/users/track', {
    attributes: [...named('carol').attributes, carol],
    purchases: [{ external_id: 'carol', ...bought }],
  });
  expect(tracked.body).toEqual({ message: 'success' });
  expect((await call('/users/track/sync', named('dora'))).status).toBe(201);
  expect(requested).toEqual(['/users/track', '/users/track/sync']);
  await waitForCount(`select count(*) from profiles where external_id in ('carol', 'dora')`, 2);

  mkdirSync(path.join(folder, 'currents', 'event_type=users.behaviors.CustomEvent'), { recursive: true });
  const event = { event_type: 'users.behaviors.CustomEvent', name: 'opened', time: 1_767_225_600 };
  put(
    'currents/event_type=users.behaviors.CustomEvent/1.ndjson.gz',
    gzipSync(lines([{ ...event, external_user_id: 'ada' }])),
  );
  put('currents/_SUCCESS', '');
  await run(backfill![0]!);
  await waitForCount(`select count(*) from profiles where external_id in ('ada', 'bob', 'carol', 'dora')`, 4);
  await waitForCount(`select count(*) from events where name = 'opened'`, 1);

  const opened = { name: 'opened', first: '2026-01-01T00:00:00Z', last: '2026-01-01T00:00:00Z', count: 1 };
  const purchases = [{ name: 'sku', first: bought.time, last: bought.time, count: 1 }];
  const theirs = [
    ...[theirUser('bob'), theirUser('dora')],
    theirUser('carol', { ...carol, purchases, total_revenue: 5 }),
  ];
  put('their-export.zip', archive([theirUser('ada', { custom_events: [opened] }), ...theirs]));
  expect(await run(compare![0]!)).toMatch(/^same +4$/m);
  put(
    'their-export.zip',
    archive([theirUser('ada', { first_name: 'Ada' }), ...theirs.slice(1), theirUser('eve')]),
  );
  const differing = run(compare![0]!.split('\n').find((line) => line.includes('compare'))!);
  await expect(differing).rejects.toThrow(/external_id ada +first_name +"Ada" +"ada"/);
  await expect(differing).rejects.toThrow(/external_id eve +user +only there/);

  await start(cutOver![0]!);
  expect((await call('/users/track', named('erin'))).status).toBe(201);
  await waitForCount(`select count(*) from profiles where external_id = 'erin'`, 1);
  expect(requested).toHaveLength(2);

  await start(goBack![0]!);
  expect((await call('/users/track', named('frank'))).body).toEqual({ message: 'success' });
  expect(requested).toHaveLength(3);
  await waitForCount(`select count(*) from profiles where external_id = 'frank'`, 1);

  // Restore into the same installation: another one has only an own address.
  await run(moveOut![0]!);
  await waitForCount(`select count(*) from events where name = 'opened'`, 2);
}, 400_000);
