import { gunzipSync } from 'node:zlib';
import { openObjectStore } from '../../src/object-store/open-object-store.ts';
import { createReach } from '../../src/platform/reach.ts';
import { startS3 } from '../integrations/s3.ts';
import { temporaryFolder } from '../setup/left-behind.ts';
import type { Received } from './receiver.ts';
import { pool, streamTo } from './scene.ts';

const region = 'eu-central-1';
const reach = createReach({ refused: 'none' });
const opening = { reach, accessTo: () => Promise.reject(new Error('no bucket')) };

export interface Place {
  to: string;
  /** Settings of a stream to this target. */
  settings: { to: string; region?: string; endpoint?: string; access_key_id?: string };
  secret?: { access_key_id: string; secret_access_key: string };
  /** Keys and contents of the files, in the order of the keys. */
  files(): Promise<{ key: string; body: Buffer }[]>;
}

export async function inFolder(folder = temporaryFolder('penstock-files-')): Promise<Place> {
  const to = `file://${folder}`;
  return { to, settings: { to }, files: filesOf(await openObjectStore(folder, opening)) };
}

/** @param through replaces the address of the bucket, for instance by a proxy's */
export async function inBucket(through?: (endpoint: string) => Promise<string>): Promise<Place> {
  const { fill, endpoint, credentials } = await startS3();
  const to = `s3://${await fill(temporaryFolder(), '')}/lake`;
  const store = await openObjectStore(to, {
    ...{ reach, accessTo: () => ({ region, endpoint, credentials }) },
  });
  const address = through ? await through(endpoint) : endpoint;
  const settings = { to, region, endpoint: address, access_key_id: credentials.access_key_id };
  return { to, settings, secret: credentials, files: filesOf(store) };
}

const filesOf = (store: Awaited<ReturnType<typeof openObjectStore>>) => async () => {
  const { objects } = await store.list('');
  const results: { key: string; body: Buffer }[] = [];
  for (const { key } of objects.sort((a, b) => (a.key < b.key ? -1 : 1))) {
    const chunks: Buffer[] = [];
    for await (const chunk of await store.get(key)) chunks.push(chunk);
    results.push({ key, body: Buffer.concat(chunks) });
  }
  return results;
};

/** Returns the messages of gzipped NDJSON files, in the order of the keys. */
export const messagesOf = (files: { body: Buffer }[]): Received[] =>
  files.flatMap(({ body }) =>
    gunzipSync(body)
      .toString('utf8')
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Received),
  );

/** Creates a stream to files that gathers for a millisecond by default. */
export function streamToFiles(
  { settings, secret }: Pick<Place, 'settings' | 'secret'>,
  { format = 'ndjson', gatherMs = 1, ...others }: { format?: string; gatherMs?: number; from?: Date } = {},
  workspace?: { id: string },
) {
  const made = { kind: 'files', settings: { ...settings, format }, gatherMs, ...others };
  return streamTo({ ...made, ...(secret && { secret }) }, workspace);
}

/** Sets the time of each row of the log so many seconds after that of the previous row. */
export async function rowsFrom(workspace: { id: string }, at: string, seconds: number): Promise<void> {
  const { rows } = await pool.query<{ id: string }>(
    'select id::text from stream_log where workspace_id = $1 order by stream_log.id',
    [workspace.id],
  );
  for (const [n, { id }] of rows.entries())
    await pool.query('update stream_log set at = $3 where workspace_id = $1 and id = $2', [
      ...[workspace.id, id, new Date(Date.parse(at) + n * seconds * 1000)],
    ]);
}
