import { readdirSync, utimesSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Readable } from 'node:stream';
import { gunzipSync } from 'node:zlib';
import { beforeEach, describe, expect, test } from 'vitest';
import { openExportFiles, writeSegmentExport } from '../../src/export/segment-export.ts';
import type { ObjectStore } from '../../src/object-store/object-store.ts';
import { signDownload } from '../../src/operations/users.export.segment.ts';
import { newId } from '../../src/platform/ids.ts';
import type { Json } from '../../src/profile/json.ts';
import { requireLinkKey } from '../../src/store/preference-centers.ts';
import { finishExport, leaseExports, renewExport } from '../../src/store/segment-export-leases.ts';
import { archiveSegment } from '../../src/store/segments.ts';
import { cleanUpExports } from '../../workers/sync/segment-exports.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { actor, archivesOf, CROWD, createScene, exportOf, readLines, unzip } from './segment-export-scene.ts';

const scene = await createScene();
const {
  store,
  pool,
  workspaceId,
  readers,
  crowd,
  callbacks,
  segment,
  settings,
  inBucket,
  send,
  shown,
  ended,
  working,
  download,
} = scene;
beforeEach(() => scene.begin());

type User = Record<string, Json>;
const byId = (one: User, other: User) => (one.external_id! < other.external_id! ? -1 : 1);
const messageOf = async (answer: Response) => [
  answer.status,
  ((await answer.json()) as { message: string }).message,
];

// "If you do not have your cloud storage credentials provided, the response to the request provides the URL where a ZIP
// file containing all the user files can be downloaded. The URL will only become a valid location once the export is
// ready." "User data is exported as multiple files of user JSON objects separated by new lines (i.e., one JSON object per
// line)." "The body of the post will be "success":true. If you have not added S3 credentials to Braze, then the body of
// the post will additionally have the attribute `url` with the download URL as the value.": the public page of
// POST /users/export/segment, as all quotations below.
describe('without a bucket', () => {
  test('the returned link opens a ZIP file of all users once it is complete, as the callback says', async () => {
    const config = settings();
    const { status, body } = await send(exportOf(readers, { callback_endpoint: callbacks.url }), config);
    expect([status, body.message]).toEqual([201, 'success']);
    expect(await messageOf(await download(config, body.url))).toEqual([404, 'The export is not ready yet']);
    // A process that stops before it reads the answer to the callback would repeat the callback.
    const isCalledBack = async () => (await shown())[0]?.toldAt != null;
    await working(config, () => waitUntil(isCalledBack, { what: 'the callback' }));
    expect(callbacks.bodies.map((text) => JSON.parse(text))).toEqual([{ success: true, url: body.url }]);
    const answer = await download(config, body.url);
    expect([answer.status, answer.headers.get('content-type')]).toEqual([200, 'application/zip']);
    const sent = Buffer.from(await answer.arrayBuffer());
    expect(sent.subarray(0, 2).toString()).toBe('PK');
    const { 'users-000001.json': users, ...others } = await unzip(config);
    expect([users!.sort(byId), others]).toEqual([
      [
        { external_id: 'ada', country: 'DE' },
        { external_id: 'bob', country: 'DE' },
      ],
      {},
    ]);
    const [done] = await shown();
    expect(done).toMatchObject({ state: 'ready', users: 2, files: 1, bytes: sent.length });
    expect(done!.toldAt).not.toBeNull();
  });

  // "Once made available, the URL will only be valid for a few hours."
  test('a lease that is renewed during the callback keeps the final counts', async () => {
    const config = settings();
    await send(exportOf(readers, { callback_endpoint: callbacks.url }), config);
    const [lease] = await leaseExports(pool, 'open', { milliseconds: 60_000, limit: 1 });
    const early = { users: 1, files: 0, bytes: 0, milliseconds: 60_000 };
    expect(await renewExport(pool, lease!, early)).toBe(true);
    const counts = { users: 2, files: 1, bytes: 321 };
    await finishExport(pool, lease!, { ...counts, linkMs: 3_600_000, milliseconds: 60_000 });
    expect(await renewExport(pool, lease!, early)).toBe(true);
    expect((await shown())[0]).toMatchObject(counts);
  });

  test('a link expires hours after the file is complete, and the file is deleted; forgeries fail', async () => {
    const config = settings();
    const { body } = await send(exportOf(readers), config);
    await working(config, () => ended());
    const forged = signDownload(
      { workspaceId: workspaceId, exportId: (await shown())[0]!.id },
      Buffer.alloc(32),
    );
    const other = (await createWorkspace(pool, newId())).id;
    const ofOther = signDownload(
      { workspaceId: other, exportId: (await shown())[0]!.id },
      await requireLinkKey(store.database, other),
    );
    for (const token of [forged, ofOther, 'nonsense', body.url.split('/').at(-1).slice(1)])
      expect(await messageOf(await download(config, `http://x/exports/${token}`))).toEqual([
        404,
        'Export not found. Check the URL, or request a new export.',
      ]);
    const [done] = await shown();
    expect(Math.round((done!.expiresAt!.getTime() - done!.endedAt!.getTime()) / 60_000)).toBe(240);
    await cleanUpExports(pool as never, config);
    expect(archivesOf(config)).toHaveLength(1);
    await pool.query(`update segment_exports set expires_at = now() - interval '2 hours'`);
    expect((await download(config, body.url)).status).toBe(410);
    const leftByKill = path.join(config.DATA_DIR, 'segment-exports/.unfinished/left');
    writeFileSync(leftByKill, 'half of the users');
    utimesSync(leftByKill, 1, 1);
    await cleanUpExports(pool as never, config);
    expect(archivesOf(config)).toEqual([]);
    // The users of the export are no longer in any file.
    const files = readdirSync(config.DATA_DIR, { recursive: true, withFileTypes: true });
    expect(files.filter((file) => file.isFile())).toEqual([]);
    expect((await download(config, body.url)).status).toBe(410);
  });

  // "Generally, we will create 1 file per 5,000 users to optimize processing."
  test('a file of the archive has 5,000 users, and each user once', async () => {
    const config = settings();
    const all = await segment(crowd, { all: [] });
    await send(exportOf(all), config, { workspaceId: crowd });
    await working(config, () => ended(crowd));
    const users = await unzip(config);
    expect(Object.entries(users).map(([name, { length }]) => [name, length])).toEqual([
      ['users-000001.json', 5000],
      ['users-000002.json', CROWD - 5000],
    ]);
    const names = Object.values(users).flatMap((lines) => lines.map(({ external_id }) => external_id));
    expect(new Set(names).size).toBe(CROWD);
  });
});

/** Archives the segment, so that the next attempt fails, and expires its files. */
async function failAndTidy(config: ReturnType<typeof settings>, segmentId: string, workspaceId: string) {
  await archiveSegment(store.database, actor, { workspaceId, id: segmentId, name: segmentId });
  const failed = await working(config, () => ended(workspaceId));
  expect(failed).toMatchObject({ state: 'failed', lastError: 'the segment was archived' });
  await pool.query('update segment_exports set expires_at = $1 where expires_at is not null', [
    new Date(Date.now() - 3_600_000),
  ]);
  await cleanUpExports(pool as never, config);
}

describe('files of an export that fails before it is ready', () => {
  /** Simulates a process that puts the files, and dies before it updates Postgres. */
  async function putAndDie(config: ReturnType<typeof settings>, isBucket: boolean) {
    const [wanted] = await leaseExports(pool, 'open', { milliseconds: 1, limit: 1 });
    const files = await openExportFiles(config);
    await writeSegmentExport(wanted!, {
      ...{ pool, store: files, isBucket, serviceIdField: 'service_id' },
      ...{ leaving: new AbortController().signal, requireMine: async () => {} },
    });
    return files;
  }

  test('are removed from a folder', async () => {
    const config = settings();
    const germans = await segment(workspaceId, { attribute: 'country', equals: 'DE' });
    const { body } = await send(exportOf(germans), config);
    (await putAndDie(config, false)).close();
    expect(archivesOf(config)).toHaveLength(1);
    await failAndTidy(config, germans, workspaceId);
    expect(archivesOf(config)).toEqual([]);
    expect(await messageOf(await download(config, body.url))).toEqual([410, expect.any(String)]);
    expect((await shown())[0]!.expiresAt).toBeNull();
  });

  test('are removed from a bucket, and other objects stay', async () => {
    const config = await inBucket();
    const germans = await segment(workspaceId, { attribute: 'country', equals: 'DE' });
    await send(exportOf(germans), config);
    const files = await putAndDie(config, true);
    const other = `segment-export/${germans}/other.zip`;
    await files.put(other, Readable.from([Buffer.from('other')]));
    expect((await files.list(`segment-export/${germans}/`)).objects).toHaveLength(2);
    await failAndTidy(config, germans, workspaceId);
    const { objects } = await files.list(`segment-export/${germans}/`);
    expect(objects.map(({ key }) => key)).toEqual([other]);
    await files.remove(other);
    files.close();
  });
});

// "each file will be uploaded in your bucket as a ZIP file with the key format that looks like
// `segment-export/SEGMENT_ID/YYYY-MM-dd/RANDOM_UUID-TIMESTAMP_WHEN_EXPORT_STARTED/filename.zip`." "If you specify an
// `output_format` of `gzip`, then the file extension will be `.gz` instead of `.zip`."
describe('with a bucket', () => {
  const keysOf = async (files: ObjectStore) => {
    const { objects } = await files.list('segment-export/');
    return objects.map(({ key }) => key);
  };

  test('the files have the documented keys, gzip as .gz, and there is no link', async () => {
    const config = await inBucket();
    const all = await segment(crowd, { all: [] });
    const query = exportOf(all, { output_format: 'gzip', callback_endpoint: callbacks.url });
    const { body } = await send(query, config, { workspaceId: crowd });
    expect(body).toEqual({ message: 'success', object_prefix: expect.any(String) });
    const [, seconds] = /^[0-9a-f-]{36}-(\d{10})$/.exec(body.object_prefix)!;
    expect(Math.abs(Number(seconds) - Date.now() / 1000)).toBeLessThan(60);
    await working(config, () => waitUntil(() => callbacks.bodies.length > 0, { what: 'the callback' }));
    expect(callbacks.bodies).toEqual(['{"success":true}']);
    const files = await openExportFiles(config);
    const keys = await keysOf(files);
    const today = new Date().toISOString().slice(0, 10);
    for (const key of keys)
      expect(key).toMatch(
        new RegExp(`^segment-export/${all}/${today}/${body.object_prefix}/[0-9a-f]{32}\\.gz$`),
      );
    const counts: number[] = [];
    for (const key of keys) {
      const chunks: Buffer[] = [];
      for await (const chunk of await files.get(key)) chunks.push(chunk);
      counts.push(readLines(gunzipSync(Buffer.concat(chunks)).toString()).length);
    }
    expect(counts.sort()).toEqual([1, 5000]);
    for (const key of keys) await files.remove(key);
    files.close();
  });

  test('files of an attempt that failed are removed once the export is ready', async () => {
    const config = await inBucket();
    const all = await segment(crowd, { all: [] });
    await send(exportOf(all), config, { workspaceId: crowd });
    const [wanted] = await leaseExports(pool, 'open', { milliseconds: 1, limit: 1 });
    const files = await openExportFiles(config);
    const broken = writeSegmentExport(wanted!, {
      ...{ pool, store: files, isBucket: true, serviceIdField: 'service_id', usersOfFile: 1000 },
      leaving: new AbortController().signal,
      async requireMine({ files }) {
        if (files === 3) throw new Error('the machine is gone');
      },
    });
    await expect(broken).rejects.toThrow('the machine is gone');
    expect(await keysOf(files)).toHaveLength(2);
    await working(config, () => ended(crowd));
    const keys = await keysOf(files);
    expect(keys).toHaveLength(2);
    expect(keys.every((key) => key.endsWith('.zip'))).toBe(true);
    expect(await shown(crowd)).toMatchObject([{ state: 'ready', users: CROWD, files: 2 }]);
    files.close();
  });

  test('web and sync with different targets fail the export with a reason', async () => {
    await send(exportOf(readers), settings());
    const { state, lastError } = await working(await inBucket(), () => ended());
    expect([state, lastError]).toEqual(['failed', expect.stringContaining('SEGMENT_EXPORT_URL')]);
  });
});

describe('content of the files', () => {
  const adaOf = async (body: Record<string, Json>) => {
    const config = settings();
    await send(body, config);
    await working(config, () => ended());
    const users = Object.values(await unzip(config)).flat();
    return users.find(({ external_id }) => external_id === 'ada');
  };

  // "Name of specific custom attribute to export. Up to 500 custom attributes can be exported." "If `custom_attributes` is
  // included in the `fields_to_export` parameter, all custom attributes are exported regardless of what is in
  // `custom_attributes_to_export`."
  test('custom attributes are exported alone, or all of them', async () => {
    const named = { custom_attributes_to_export: ['plan'] };
    const some = await adaOf(exportOf(readers, named));
    expect(some).toEqual({ external_id: 'ada', country: 'DE', custom_attributes: { plan: 'pro' } });
    const fields_to_export = ['external_id', 'custom_attributes'];
    const all = await adaOf(exportOf(readers, { ...named, fields_to_export }));
    expect(all).toEqual({ external_id: 'ada', custom_attributes: { plan: 'pro', points: 3 } });
  });

  // "The fields for `custom_events`, `purchases`, `campaigns_received`, and `canvases_received` only contain data from the
  // last 90 days." "Both `custom_events` and `purchases` contain fields for `first` and `count`. Both of these fields will
  // reflect information from all time".
  test('events of the last 90 days are listed, with first time and count of all time', async () => {
    const ada = await adaOf(
      exportOf(readers, { fields_to_export: ['external_id', 'custom_events', 'canvases_received'] }),
    );
    expect(ada!.custom_events).toEqual([
      { name: 'read', first: '2020-01-01T00:00:00.000Z', last: expect.any(String), count: 2 },
    ]);
  });
});
