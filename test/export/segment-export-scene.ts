import { readdirSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { inflateRawSync } from 'node:zlib';
import { CreateBucketCommand } from '@aws-sdk/client-s3';
import express from 'express';
import { Registry } from 'prom-client';
import { expect } from 'vitest';
import { commandLine } from '../../src/admin/installation.ts';
import { Responses } from '../../src/edge/responses.ts';
import { addSegmentDownloads } from '../../src/edge/segment-downloads.ts';
import { createDownloadSettings } from '../../src/export/segment-export.ts';
import { listZip } from '../../src/import/unpack.ts';
import type { Resources } from '../../src/operations/operation.ts';
import { usersExportSegment } from '../../src/operations/users.export.segment.ts';
import { type Config, readConfig } from '../../src/platform/config.ts';
import { newId } from '../../src/platform/ids.ts';
import type { Json } from '../../src/profile/json.ts';
import { readDefinition } from '../../src/profile/segment.ts';
import { compile, describeError } from '../../src/schemas/compile.ts';
import { listExports } from '../../src/store/segment-exports.ts';
import { createSegment } from '../../src/store/segments.ts';
import { JobAttempts } from '../../workers/jobs/job-attempts.ts';
import { startSegmentExports } from '../../workers/sync/segment-exports.ts';
import { startS3 } from '../integrations/s3.ts';
import { type Answer, callerOf } from '../operations/caller.ts';
import { createStore } from '../operations/in-process.ts';
import { temporaryFolder, waitUntil } from '../setup/fixtures.ts';
import { leaveBehind } from '../setup/left-behind.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { silent } from '../workers/batch.ts';

/** Number of users: one more than the maximum of a file. */
export const CROWD = 5001;
export const actor = commandLine();

/**
 * Creates two workspaces, one with many users, a bucket, and a receiver of callbacks: exports without web and
 * sync.
 */
export async function createScene() {
  const store = await createStore();
  leaveBehind(store.stop);
  await store.track({
    attributes: [
      { external_id: 'ada', country: 'DE', plan: 'pro', points: 3 },
      { external_id: 'bob', country: 'DE', plan: 'free' },
      { external_id: 'cy', country: 'FR' },
    ],
    events: [
      { external_id: 'ada', name: 'read', time: '2020-01-01T00:00:00Z' },
      { external_id: 'ada', name: 'read', time: new Date().toISOString() },
      { external_id: 'ada', name: 'wrote', time: '2020-01-01T00:00:00Z' },
    ],
  } as never);
  const readers = await segment(store.workspaceId, { attribute: 'country', equals: 'DE' });
  const { id: crowd } = await createWorkspace(store.database.pool, 'crowd');
  await store.database.pool.query(
    `insert into profiles (workspace_id, id, external_id, created_at, updated_at)
     select $1, ('019a0000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'user' || n, now(), now()
     from generate_series(1, $2::integer) as n`,
    [crowd, CROWD],
  );
  const callbacks = await startCallbacks();

  async function segment(workspaceId: string, definition: Json): Promise<string> {
    const words = { name: newId(), purpose: '', definition: readDefinition(definition) };
    const made = await createSegment(store.database, actor, { workspaceId, ...words });
    return (made as { id: string }).id;
  }

  /** Returns settings, by default with a new folder. */
  function settings(change: Record<string, string> = {}): Config {
    const own = { DATA_DIR: temporaryFolder(), ALLOWED_NETWORKS: '127.0.0.0/8', DATABASE_URL: store.url };
    return readConfig({ ...own, ...change });
  }

  async function inBucket(): Promise<Config> {
    const { endpoint, credentials, client } = await startS3();
    await client.send(new CreateBucketCommand({ Bucket: 'exports' })).catch(() => {});
    return settings({
      ...{ SEGMENT_EXPORT_URL: 's3://exports/theirs', S3_ENDPOINT: endpoint, S3_REGION: 'eu-central-1' },
      ...{
        S3_ACCESS_KEY_ID: credentials.access_key_id,
        S3_SECRET_ACCESS_KEY: credentials.secret_access_key,
      },
    });
  }

  /** Runs the stages of the operation after the parser of the body. */
  async function send(body: Record<string, Json>, config: Config, change = {}): Promise<Answer> {
    const operation = usersExportSegment('service_id');
    const check = compile(operation.body!);
    if (!check(body)) throw new Error(describeError(check.errors![0]!).error);
    const resources = { database: store.database, downloads: createDownloadSettings(config) } as Resources;
    return (await operation.handle(
      callerOf(store.workspaceId, change),
      { body, query: {}, params: {} },
      resources,
    )) as Answer;
  }

  const shown = (workspaceId = store.workspaceId) => listExports(store.database, workspaceId, { limit: 10 });

  const ended = (workspaceId?: string) =>
    waitUntil(
      async () => {
        const [last] = await shown(workspaceId);
        return last?.state === 'open' ? undefined : last;
      },
      { what: 'the end of the export' },
    );

  /** Runs the segment exports of a sync process until the work of the test has ended. */
  async function working<T>(config: Config, work: () => Promise<T>): Promise<T> {
    const registry = new Registry();
    const { pool } = store.database;
    const attempts = new JobAttempts({ pool, processId: newId(), log: silent, registry });
    const options = { databaseUrl: store.url, config, registry, log: silent, attempts };
    const service = startSegmentExports(options);
    try {
      return await work();
    } finally {
      await service.stop();
    }
  }

  async function download(config: Config, url: string): Promise<Response> {
    const app = express();
    const { database } = store;
    const { order } = new Responses(33_554_432);
    addSegmentDownloads(app, { database, files: config, order, log: silent });
    const server = app.listen(0, '127.0.0.1');
    leaveBehind(async () => void server.close());
    await new Promise((resolve) => server.once('listening', resolve));
    const { port } = server.address() as AddressInfo;
    return fetch(`http://127.0.0.1:${port}${new URL(url).pathname}`);
  }

  async function begin(): Promise<void> {
    [callbacks.bodies, callbacks.statuses] = [[], []];
    await store.database.pool.query('delete from segment_exports');
  }

  return {
    ...{ store, pool: store.database.pool, workspaceId: store.workspaceId, readers, crowd, callbacks },
    ...{ segment, settings, inBucket, send, shown, ended, working, download, begin },
  };
}

async function startCallbacks() {
  const callbacks = { bodies: [] as string[], statuses: [] as number[], url: '' };
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    callbacks.bodies.push(body);
    response.writeHead(callbacks.statuses.shift() ?? 204).end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  callbacks.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/exported`;
  leaveBehind(async () => server.closeAllConnections());
  return callbacks;
}

export const exportOf = (segment_id: string, more: Record<string, Json> = {}) => ({
  ...{ segment_id, fields_to_export: ['external_id', 'country'] },
  ...more,
});

/** Parses users, one per line. */
export function readLines(text: string): Record<string, Json>[] {
  return text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
}

export const folderOf = (config: Config) => path.join(config.DATA_DIR, 'segment-exports');
export const archivesOf = (config: Config) =>
  readdirSync(folderOf(config))
    .filter((file) => file.endsWith('.zip'))
    .map((file) => path.join(folderOf(config), file));

/** Returns the users of each file of the archive in a folder, by file name. */
export async function unzip(config: Config): Promise<Record<string, Record<string, Json>[]>> {
  const [file, ...others] = archivesOf(config);
  expect(others).toEqual([]);
  const handle = await open(file!);
  try {
    const { size } = await handle.stat();
    const users: Record<string, Record<string, Json>[]> = {};
    for (const { name, offset, packedBytes, bytes } of await listZip(handle, size)) {
      const head = await handle.read(Buffer.alloc(30), 0, 30, offset);
      const at = offset + 30 + head.buffer.readUInt16LE(26) + head.buffer.readUInt16LE(28);
      const packed = await handle.read(Buffer.alloc(packedBytes), 0, packedBytes, at);
      const text = inflateRawSync(packed.buffer);
      expect(text.length).toBe(bytes);
      users[name] = readLines(text.toString());
    }
    return users;
  } finally {
    await handle.close();
  }
}
