import { createWriteStream } from 'node:fs';
import { rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import type { BucketAccess } from '../integrations/bucket-client.ts';
import type { Credentials } from '../integrations/source.ts';
import { inWords } from '../object-store/folder-store.ts';
import { type ObjectStore, ObjectStoreError } from '../object-store/object-store.ts';
import { openObjectStore } from '../object-store/open-object-store.ts';
import { type ParquetColumn, ParquetError, type ParquetRow } from '../object-store/parquet.ts';
import { writeParquet } from '../object-store/write-parquet.ts';
import { createSemaphore, openOnce } from '../platform/concurrency.ts';
import { readChunks, scratchFolders } from '../platform/files.ts';
import { withTimeout } from '../platform/lifecycle.ts';
import type { Reach } from '../platform/reach.ts';
import { linkSignals } from '../platform/time-limit.ts';
import { DeliveryError, type FileDestination, type Piece } from './destination.ts';
import {
  type FileLocations,
  type FilesSettings,
  folderOf,
  keyOf,
  requireFolder,
  type StreamFormat,
} from './file-locations.ts';

/** Milliseconds for storing a complete file. */
const TIMEOUT_MS = 120_000;

/** Name of the test file. Programs that read folders ignore names with an underscore. */
const CHECK_KEY = '_penstock_test';

const scratch = scratchFolders('streams');
let tidied: Promise<void> | undefined;

/**
 * Locations with an attempt that has not returned, for example on a network disk that is unreachable. The
 * system cannot cancel such an attempt. A further attempt would hang as well, and each occupies one of the
 * few threads that Node has for files.
 */
const hanging = new Set<string>();

interface FilesOptions {
  settings: FilesSettings;
  /** Absent if the bucket uses the settings S3_*. */
  account: Extract<Credentials, { access_key_id: string }> | undefined;
  reach: Reach;
  locations: FileLocations;
  serviceIdField: string;
  milliseconds?: number;
}

/**
 * Opens a destination for files in a folder or under a prefix of a bucket. A file is written to a temporary
 * folder and stored when it is complete.
 */
export function openFiles(options: FilesOptions): FileDestination {
  const { settings, locations, reach, serviceIdField, milliseconds = TIMEOUT_MS } = options;
  const { to, format } = settings;
  const folder = folderOf(to);
  let opened: ObjectStore | undefined;
  const open = openOnce(async (): Promise<ObjectStore> => {
    if (folder !== undefined) requireFolder(folder, locations);
    opened = await openObjectStore(to, { reach, accessTo: () => accessOf(options) });
    return opened;
  });

  async function store(key: string, from: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<void> {
    const store = await open();
    // If this created the folder, the file could end up below the mount point of a disk that is not mounted.
    if (folder !== undefined) await requireExistingFolder(folder);
    signal.throwIfAborted();
    await store.put(key, from, { signal });
  }

  /**
   * Stores a file. It rejects when the signal aborts or the time is over, even if the pending operation does
   * not end.
   */
  async function put(key: string, from: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<void> {
    if (hanging.has(to)) throw new DeliveryError(`${to} still has an earlier write in progress`);
    const late = new DeliveryError(`${to}: a file was not put within ${milliseconds / 1000} s`);
    const ended = new AbortController();
    let isOver = false;
    const linked = linkSignals({ signals: [signal, ended.signal] });
    const putting = store(key, from, linked.signal).finally(() => {
      isOver = true;
      hanging.delete(to);
      linked.release();
    });
    try {
      await withTimeout(milliseconds, putting, { signal, late: () => late });
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      if (error !== late) throw toDeliveryError(error);
      if (!isOver) hanging.add(to);
      ended.abort(late);
      throw late;
    }
  }

  return {
    async write(pieces, signal) {
      tidied ??= scratch.tidy().catch(() => {});
      await tidied;
      const given = recordFailure(pieces);
      let own: string | undefined;
      const discard = async () => {
        if (own !== undefined) await rm(own, { recursive: true, force: true }).catch(() => {});
      };
      try {
        own = await scratch.make();
        const file = path.join(own, 'file');
        await writers[format](given.pieces, { file, serviceIdField, signal });
        return {
          put: (range, until) => put(keyOf(range, format), readChunks(file), until),
          discard,
        };
      } catch (error) {
        await discard();
        signal.throwIfAborted();
        throw given.failure ? given.failure.error : toDeliveryError(error);
      }
    },
    async check(signal) {
      await put(CHECK_KEY, oneLine(), signal);
      // An account that may write is not always allowed to remove objects.
      await opened?.remove(CHECK_KEY).catch(() => {});
    },
    async close() {
      opened?.close();
    },
  };
}

async function* oneLine(): AsyncGenerator<Uint8Array> {
  yield Buffer.from('a test of penstock\n');
}

async function accessOf({ settings, account, locations }: FilesOptions): Promise<BucketAccess> {
  const { region, endpoint } = settings;
  if (account === undefined || region === undefined) return locations.bucketAccess();
  return { region, endpoint, credentials: account };
}

/** @throws {ObjectStoreError} `config` */
async function requireExistingFolder(folder: string): Promise<void> {
  const statsOrError = await stat(folder).catch((error: NodeJS.ErrnoException) => error);
  if (!(statsOrError instanceof Error) && statsOrError.isDirectory()) return;
  const code = statsOrError instanceof Error ? ` (${statsOrError.code})` : '';
  throw new ObjectStoreError(
    'config',
    `${folder} is not an existing folder${code}: create it, or mount its disk`,
  );
}

/** Records whether the source of the pieces failed. Such an error is not a failure of the file. */
function recordFailure(pieces: AsyncIterable<Piece>) {
  const given: { pieces: AsyncIterable<Piece>; failure?: { error: unknown } } = { pieces: watching() };
  async function* watching(): AsyncGenerator<Piece> {
    try {
      yield* pieces;
    } catch (error) {
      given.failure = { error };
      throw error;
    }
  }
  return given;
}

function toDeliveryError(error: unknown): unknown {
  if (error instanceof DeliveryError) return error;
  const { code, message } = error as NodeJS.ErrnoException;
  const hasUserMessage = error instanceof ObjectStoreError || error instanceof ParquetError;
  // The error is a system error for the temporary folder.
  const isSystemError = typeof code === 'string' && /^E[A-Z]+$/.test(code);
  return hasUserMessage || isSystemError ? new DeliveryError(message, { cause: error }) : error;
}

interface Writing {
  /** Path on a local disk, where no file exists yet. */
  file: string;
  /** API name of the service id. */
  serviceIdField: string;
  signal: AbortSignal;
}

type Write = (pieces: AsyncIterable<Piece>, writing: Writing) => Promise<void>;

/** Writes one envelope per line. */
const writeLines: Write = async (pieces, { file, signal }) => {
  async function* lines(): AsyncGenerator<string> {
    for await (const { envelopes } of pieces) if (envelopes.length > 0) yield `${envelopes.join('\n')}\n`;
  }
  const writing = pipeline(lines(), createGzip(), createWriteStream(file, { flags: 'wx', mode: 0o600 }), {
    signal,
  });
  await inWords(writing, { name: file, doing: 'written' });
};

/** DuckDB may briefly take much memory, so a process writes one Parquet file at a time. */
const oneAtATime = createSemaphore({
  ...{ maxRunning: 1, maxRunningPerOwner: 1, maxWaiting: 1000, maxWaitingPerOwner: 1000, patience: 600_000 },
  refusal: () => new DeliveryError('too many Parquet files are to be written at once'),
});

/** Writes one row per message; `data` is JSON. */
const writeRows: Write = (pieces, { file, serviceIdField, signal }) => {
  const columns: ParquetColumn[] = [
    { name: 'id', type: 'uuid' },
    { name: 'type', type: 'text' },
    { name: 'time', type: 'timestamp' },
    { name: 'workspace_id', type: 'uuid' },
    { name: serviceIdField, type: 'text' },
    { name: 'external_id', type: 'text' },
    { name: 'data', type: 'json' },
    { name: 'position', type: 'text' },
  ];
  async function* rows(): AsyncGenerator<ParquetRow> {
    for await (const { messages } of pieces)
      for (const { id, type, time, workspaceId, user, data, position } of messages)
        yield {
          ...{ id, type, time, workspace_id: workspaceId, data, position },
          [serviceIdField]: user?.service_id,
          external_id: user?.external_id,
        };
  }
  return oneAtATime.use(file, async () => {
    signal.throwIfAborted();
    await writeParquet(rows(), { file, columns, signal });
  });
};

const writers: Record<StreamFormat, Write> = { ndjson: writeLines, parquet: writeRows };
