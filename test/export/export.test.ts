import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import type pg from 'pg';
import { v7 } from 'uuid';
import { beforeAll, expect, test } from 'vitest';
import { type ExportOptions, exportRows } from '../../src/export/export-rows.ts';
import type { Progress, Wanted } from '../../src/export/progress.ts';
import type { ObjectStore } from '../../src/object-store/object-store.ts';
import { openObjectStore } from '../../src/object-store/open-object-store.ts';
import { MANIFEST } from '../../src/platform/files.ts';
import { createReach } from '../../src/platform/reach.ts';
import { inSnapshot } from '../../src/store/transactions.ts';
import { expectRefusal, type PenstockOn } from '../admin/penstock.ts';
import { startS3 } from '../integrations/s3.ts';
import { temporaryFolder } from '../setup/fixtures.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { openShop } from './shop.ts';

const USERS = 23;
let pool: pg.Pool;
let on: PenstockOn;
let workspaceId: string;

beforeAll(async () => {
  ({ pool, on, workspaceId } = await openShop());
  const other = (await createWorkspace(pool, 'other')).id;
  for (let user = 0; user < USERS; user += 1)
    await insert(workspaceId, `user${user}`, user % 2 ? 'DE' : 'FR');
  await insert(other, 'stranger', 'DE');
});

const insert = (workspace: string, externalId: string, country: string) =>
  pool.query(
    `insert into profiles (workspace_id, id, external_id, country, custom_attributes, created_at, updated_at)
     values ($1, $2, $3, $4, '{"points": 1}', now(), now())`,
    [workspace, v7(), externalId, country],
  );

const all = (): Wanted => ({
  ...{ what: 'profiles', format: 'ndjson.gz', from: null, until: null },
  ...{ workspace: { id: workspaceId, name: 'shop' }, segment: null },
  fields: ['external_id', 'country', 'custom_attributes'],
});

const folderStore = (folder: string) =>
  openObjectStore(folder, {
    reach: createReach({ refused: 'none' }),
    accessTo: () => {
      throw new Error('no bucket');
    },
  });

/** A few users per page and per file, so that there are several of both. */
const run = (store: ObjectStore, more: Partial<ExportOptions> = {}) =>
  exportRows(all(), {
    ...{ pool, store, serviceIdField: 'service_id', rowsOfFile: 6, lookedAt: 3 },
    ...{ leaving: new AbortController().signal, ...more },
  });

function rowsIn(folder: string): { external_id: string }[] {
  const names = readdirSync(folder).filter((name) => name.endsWith('.gz'));
  const texts = names.sort().map((name) => gunzipSync(readFileSync(path.join(folder, name))).toString());
  return texts.flatMap((text) =>
    text
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line)),
  );
}

const manifestOf = (folder: string): Progress =>
  JSON.parse(readFileSync(path.join(folder, MANIFEST), 'utf8'));

const everyone = Array.from({ length: USERS }, (_, user) => `user${user}`);

test('every user is exported once, by id, in files that the manifest counts and proves', async () => {
  const folder = temporaryFolder();
  await run(await folderStore(folder));
  const rows = rowsIn(folder);
  expect(rows.map(({ external_id }) => external_id)).toEqual(everyone);
  expect(rows[0]).toEqual({ external_id: 'user0', country: 'FR', custom_attributes: { points: 1 } });
  const { rows: counted, files, moments } = manifestOf(folder);
  expect([counted, moments.length, files.map((file) => file.rows)]).toEqual([USERS, 1, [6, 6, 6, 5]]);
  for (const { key, bytes, sha256 } of files) {
    const content = readFileSync(path.join(folder, key));
    expect([content.length, createHash('sha256').update(content).digest('hex')]).toEqual([bytes, sha256]);
  }
  expect(readdirSync(folder)).not.toContain('unfinished.json');
});

test('an interrupted export continues after its last complete file, and names each snapshot', async () => {
  const folder = temporaryFolder();
  const store = await folderStore(folder);
  let puts = 0;
  const dying: ObjectStore = {
    ...store,
    async put(key, from, options) {
      if (key.endsWith('.gz')) puts += 1;
      if (puts < 3) return store.put(key, from, options);
      async function* half() {
        for await (const chunk of from) {
          yield chunk;
          throw new Error('the machine is gone');
        }
      }
      return store.put(key, half(), options);
    },
  };
  await expect(run(dying)).rejects.toThrow('the machine is gone');
  expect(rowsIn(folder).map(({ external_id }) => external_id)).toEqual(everyone.slice(0, 12));
  expect(readdirSync(folder)).not.toContain(MANIFEST);
  const whole = readFileSync(path.join(folder, 'profiles-000001.ndjson.gz'));
  await run(store);
  expect(rowsIn(folder).map(({ external_id }) => external_id)).toEqual(everyone);
  expect(readFileSync(path.join(folder, 'profiles-000001.ndjson.gz'))).toEqual(whole);
  const { moments } = manifestOf(folder);
  expect(moments.map(({ first_file }) => first_file)).toEqual([
    'profiles-000001.ndjson.gz',
    'profiles-000003.ndjson.gz',
  ]);
  expect(moments[0]!.as_of < moments[1]!.as_of).toBe(true);
});

test('changes during an export are not in it', async () => {
  const folder = temporaryFolder();
  let writing: Promise<unknown> | undefined;
  await run(await folderStore(folder), {
    onProgress() {
      writing ??= pool.query(
        `update profiles set country = 'IT' where workspace_id = $1 and external_id = 'user22'`,
        [workspaceId],
      );
    },
  });
  await writing;
  expect(rowsIn(folder).at(-1)).toMatchObject({ external_id: 'user22', country: 'FR' });
});

test('a target takes one process at a time, and one export', async () => {
  const store = await folderStore(temporaryFolder());
  const refused = inSnapshot(pool, store.where, () => run(store).catch((error: Error) => error.message));
  expect(await refused).toMatch(/another process is exporting to/);
  const leaving = AbortSignal.abort(new Error('left'));
  await expect(run(store, { leaving })).rejects.toThrow('left');
  await run(store);
  await expect(run(store)).rejects.toThrow('already has a complete export');
  const other = await folderStore(temporaryFolder());
  let users = 0;
  const left = new AbortController();
  const stopped = run(other, {
    leaving: left.signal,
    onProgress() {
      users += 3;
      if (users > 9) left.abort(new Error('left'));
    },
  });
  await expect(stopped).rejects.toThrow('left');
  const wanted = { ...all(), fields: ['email'] };
  const differently = exportRows(wanted, {
    ...{ pool, store: other, serviceIdField: 'service_id', leaving: new AbortController().signal },
  });
  await expect(differently).rejects.toThrow('another value of fields');
});

test('penstock export writes a segment to a folder or bucket, and names obstacles', async () => {
  const { segment_id } = await on.json([
    ...['segments', 'create', '--workspace', 'shop', '--name', 'Germans'],
    ...['--definition', '{"attribute":"country","equals":"DE"}'],
  ]);
  const folder = path.join(temporaryFolder(), 'germans');
  const command = ['export', '--workspace', 'shop', '--segment', segment_id, '--fields', 'external_id'];
  const summary = await on.json([...command, '--to', folder]);
  expect(summary).toMatchObject({ to: folder, rows: 11, rows_cut: 0, files: 1, moments: 1 });
  expect(rowsIn(folder)[0]).toEqual({ external_id: 'user1' });
  const { rows: auditRows } = await pool.query("select detail from audit where action = 'exports.begin'");
  expect(auditRows).toEqual([
    {
      detail: {
        ...{ what: 'profiles', to: folder, segment_id, fields: ['external_id'], from: null, until: null },
      },
    },
  ]);
  expectRefusal(await on.run([...command, '--to', folder]), 'already has a complete export');
  expectRefusal(await on.run([...command, '--to', 'gs://x']), '--to');
  expectRefusal(await on.run([...command, '--to', 's3://bucket/x']), 'S3_REGION');
  expectRefusal(
    await on.run(['export', '--workspace', 'shop', '--to', folder, '--fields', 'nick']),
    "'nick'",
  );
  writeFileSync(path.join(folder, '..', 'file'), '');
  expectRefusal(
    await on.run([...command, '--to', path.join(folder, '..', 'file')]),
    'is a file, not a folder',
  );

  const s3 = await startS3();
  const bucket = await s3.fill(temporaryFolder(), '');
  const secret = path.join(temporaryFolder(), 'secret');
  writeFileSync(secret, s3.credentials.secret_access_key);
  const access = ['--region', 'eu-central-1', '--endpoint', s3.endpoint, '--secret-file', secret];
  const key = ['--access-key-id', s3.credentials.access_key_id];
  const to = ['--to', `s3://${bucket}/germans`];
  expect(await on.json([...command, ...to, ...access, ...key])).toMatchObject({ rows: 11, files: 1 });
});
