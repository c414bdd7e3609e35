import { Readable } from 'node:stream';
import { GetObjectCommand, NoSuchKey, paginateListObjectsV2 } from '@aws-sdk/client-s3';
import { poll } from '../platform/poll.ts';
import { runStep, unwatched, type Watcher } from '../platform/steps.ts';
import { linkSignals } from '../platform/time-limit.ts';
import {
  type Bucket,
  type BucketLocation,
  connectBucket,
  PAGE_KEYS,
  type TimeLimits,
  toSourceError,
} from './bucket-client.ts';
import { type InputFile, inputPath, isOfFormat, isPacked, MAX_FILES } from './files/input.ts';
import { copyIn, createScratch, freeOf, MAX_SHARE_OF_FREE, type Scratch } from './files/scratch.ts';
import { type Files, openFiles } from './files-source.ts';
import {
  type BucketDefinition,
  type Credentials,
  type FileFormat,
  type Source,
  SourceError,
  type SourceOptions,
} from './source.ts';

/** Number of objects that are fetched concurrently. */
const CONCURRENT_FETCHES = 4;

/** Maximum pages of a list, whether or not their objects match. */
const MAX_PAGES = 10_000;

/**
 * Minimum bytes that an object must transfer in a period: 1 KiB a second with the default period. A slower
 * transfer is aborted.
 */
const MIN_BYTES_PER_WINDOW = 61_440;

export interface BucketObject {
  key: string;
  size: number;
  /** Epoch milliseconds. */
  modifiedAt: number;
}

/** Selects the objects of a list; `what` names them in messages. */
interface Selection {
  what: string;
  matches(key: string): boolean;
}

/**
 * Lists the matching objects under the prefix, by key.
 * @throws {SourceError} `config` if there are none or too many; `failed` if the list takes too long
 */
async function listObjects(
  bucket: Bucket,
  { what, matches }: Selection,
  signal?: AbortSignal,
): Promise<BucketObject[]> {
  const { prefix } = bucket.definition;
  const objects: BucketObject[] = [];
  const limit = linkSignals({ signals: [signal], milliseconds: bucket.patience.list });
  let page = 0;
  try {
    const pages = paginateListObjectsV2(
      { client: bucket.client, pageSize: PAGE_KEYS },
      { Bucket: bucket.definition.bucket, Prefix: prefix },
      { abortSignal: limit.signal },
    );
    for await (const { Contents = [] } of pages) {
      page += 1;
      if (page > MAX_PAGES || objects.length > MAX_FILES)
        throw new SourceError(
          'config',
          `${bucket.where}: the list under the prefix "${prefix}" is too long (${MAX_FILES} matching objects, ${MAX_PAGES} pages); use a longer prefix`,
        );
      for (const { Key: key = '', Size: size = 0, LastModified } of Contents)
        if (matches(key)) objects.push({ key, size, modifiedAt: LastModified?.getTime() ?? 0 });
    }
  } catch (error) {
    signal?.throwIfAborted();
    if (!limit.isLate()) throw toSourceError(error, bucket.where);
    const late = `${bucket.where}: the list did not end within ${bucket.patience.list} ms`;
    throw new SourceError('failed', late, { cause: error });
  } finally {
    limit.release();
  }
  if (objects.length > 0) return objects;
  throw new SourceError('config', `${bucket.where}: no ${what} was found under the prefix "${prefix}"`);
}

/** Provides objects as files. The columns are read from the newest object. */
function objectFiles(
  bucket: Bucket,
  objects: readonly BucketObject[],
  {
    scratch,
    format,
    signal: opening,
  }: { scratch: Scratch; format: FileFormat; signal: AbortSignal | undefined },
): Files {
  const fetched = new Map<string, Promise<InputFile>>();
  function fetchOnce(object: BucketObject, signal?: AbortSignal): Promise<InputFile> {
    const pending = fetched.get(object.key);
    if (pending) return pending;
    const path = inputPath(scratch, fetched.size, format);
    const packed = isPacked(object.key, format);
    const fetching = fetchObject(bucket, object, { scratch, path, packed, signal });
    fetched.set(object.key, fetching);
    fetching.catch(() => fetched.delete(object.key));
    return fetching;
  }
  return {
    release: () => bucket.client.destroy(),
    async forColumns() {
      const full = objects.filter(({ size }) => size > 0);
      const newest = (full.length > 0 ? full : objects).reduce((one, other) =>
        other.modifiedAt > one.modifiedAt ? other : one,
      );
      await requireSpace(bucket, [newest], scratch);
      return [await fetchOnce(newest, opening)];
    },
    async all(signal) {
      const missing = objects.filter(({ key }) => !fetched.has(key));
      await requireSpace(bucket, missing, scratch);
      const queue = objects.values();
      const files: InputFile[] = [];
      const failed = new AbortController();
      const { signal: either, release } = linkSignals({ signals: [signal, failed.signal] });
      const fetchers = Array.from({ length: CONCURRENT_FETCHES }, async () => {
        for (const object of queue) {
          either.throwIfAborted();
          files.push(await fetchOnce(object, either));
        }
      });
      // Wait for the other fetches, so that they do not write into a folder that is being removed.
      const ends = await Promise.allSettled(
        fetchers.map((fetcher) =>
          fetcher.catch((error) => {
            failed.abort(error);
            throw error;
          }),
        ),
      );
      release();
      signal.throwIfAborted();
      if (ends.some(({ status }) => status === 'rejected')) throw failed.signal.reason;
      return files.sort((one, other) => (one.name < other.name ? -1 : 1));
    },
  };
}

async function requireSpace(
  { where }: Bucket,
  objects: readonly BucketObject[],
  scratch: Scratch,
): Promise<void> {
  const needed = objects.reduce((sum, { size }) => sum + size, 0);
  const free = await freeOf(scratch.path);
  if (needed <= free * MAX_SHARE_OF_FREE) return;
  throw new SourceError(
    'failed',
    `${where}: ${objects.length} objects have ${needed} bytes, but the disk of ${scratch.path} has only ${free} bytes free, of which they can use ${MAX_SHARE_OF_FREE * 100} %`,
  );
}

interface Fetching {
  scratch: Scratch;
  path: string;
  /** Whether the object is decompressed while it is fetched. */
  packed: boolean;
  signal: AbortSignal | undefined;
  onBytes?: (bytes: number) => void;
}

async function fetchObject(
  bucket: Bucket,
  object: BucketObject,
  { scratch, path, packed, signal, onBytes }: Fetching,
): Promise<InputFile> {
  const name = `s3://${bucket.definition.bucket}/${object.key}`;
  try {
    const options = signal ? { abortSignal: signal } : {};
    const command = new GetObjectCommand({ Bucket: bucket.definition.bucket, Key: object.key });
    const { Body } = await bucket.client.send(command, options);
    const bounds = { ...object, name, patience: bucket.patience };
    const body = Body as Readable;
    // Until the first read, an error would have no listener.
    body.on('error', () => {});
    const from = Readable.from(guardedBytes(body, bounds, onBytes));
    await copyIn(scratch, { from, name, to: path, packed, signal });
    return { name, path };
  } catch (error) {
    signal?.throwIfAborted();
    if (error instanceof NoSuchKey) {
      throw new SourceError('failed', `${name} was deleted while the bucket was being read`, {
        cause: error,
      });
    }
    if ((error as NodeJS.ErrnoException).code === 'ENOSPC')
      throw new SourceError('failed', `${name}: the disk of ${scratch.path} is full`, { cause: error });
    throw toSourceError(error, name);
  }
}

/** Yields the bytes of an object. It fails if the transfer is too slow or exceeds the size in the list. */
async function* guardedBytes(
  body: Readable,
  { name, size, patience }: { name: string; size: number; patience: TimeLimits },
  onBytes?: (bytes: number) => void,
): AsyncGenerator<Buffer> {
  let [bytes, bytesBefore] = [0, 0];
  const ratePoller = poll(patience.window, () => {
    if (bytes - bytesBefore < MIN_BYTES_PER_WINDOW) {
      const slow = `${name} is too slow: ${bytes - bytesBefore} bytes arrived in ${patience.window} ms`;
      body.destroy(new SourceError('failed', slow));
    }
    bytesBefore = bytes;
  });
  try {
    for await (const chunk of body) {
      bytes += chunk.length;
      if (bytes > size) {
        throw new SourceError(
          'failed',
          `${name} has more than the ${size} bytes that the list has: it has changed since`,
        );
      }
      onBytes?.(chunk.length);
      yield chunk;
    }
  } finally {
    void ratePoller.stop();
  }
}

const DEFAULT_LIMITS: TimeLimits = { connect: 10_000, silence: 60_000, list: 600_000, window: 60_000 };

/**
 * Opens all objects of a format under a prefix of an S3-compatible bucket. Objects are fetched to the scratch
 * folder and read there like files. All of them are fetched, because an object may contain any UPDATED_AT,
 * whenever it was written.
 * @throws {SourceError} `config` for a wrong key, bucket or endpoint, and if there is no object
 */
export function openBucket(
  definition: BucketDefinition,
  credentials: Extract<Credentials, { access_key_id: string }>,
  { patience = DEFAULT_LIMITS, ...options }: SourceOptions & { patience?: TimeLimits },
): Promise<Source> {
  return openFiles(definition.format, options, async (scratch) => {
    const bucket = connectBucket(definition, credentials, { reach: options.reach, patience });
    try {
      const { format, prefix } = definition;
      // Check only the part after the last slash of the prefix, because the owner chose the folders before
      // it.
      const matches = (key: string) => isOfFormat(key.slice(prefix.lastIndexOf('/') + 1), format);
      const objects = await listObjects(bucket, { what: `${format} object`, matches }, options.signal);
      return objectFiles(bucket, objects, { scratch, format, signal: options.signal });
    } catch (error) {
      bucket.client.destroy();
      throw error;
    }
  });
}

/** A fetched object, stored unchanged until the next one is requested. */
export interface FetchedObject {
  /** Name as `s3://bucket/key`. */
  name: string;
  path: string;
}

type FetchOptions = Omit<SourceOptions, 'serviceIdField'> & { patience?: TimeLimits; watcher?: Watcher };

/**
 * Yields objects of a bucket one after the other, by key: the object whose key is the prefix, or all objects
 * below the prefix if it is empty or ends in a slash. Names that begin with a dot or an underscore are
 * ignored, because many programs use them for unfinished files.
 * @throws {SourceError} `config` for a wrong key, bucket or endpoint, and if there is no object
 */
export async function* fetchObjects(
  location: BucketLocation,
  credentials: Extract<Credentials, { access_key_id: string }>,
  { patience = DEFAULT_LIMITS, watcher = unwatched, ...options }: FetchOptions,
): AsyncGenerator<FetchedObject> {
  const { prefix } = location;
  const { signal } = options;
  const isFolder = prefix === '' || prefix.endsWith('/');
  const matches = (key: string) =>
    isFolder ? !/(^|\/)([._]|$)/.test(key.slice(prefix.length)) : key === prefix;
  const scratch = await createScratch(options.scratchBytes);
  const bucket = connectBucket(location, credentials, { reach: options.reach, patience });
  try {
    for (const object of await listObjects(bucket, { what: 'object', matches }, signal)) {
      await requireSpace(bucket, [object], scratch);
      const path = `${scratch.inputs}/object`;
      const name = `s3://${location.bucket}/${object.key}`;
      const step = { name, doing: 'fetching', of: 'bytes', total: object.size } as const;
      yield await runStep(watcher, step, () =>
        fetchObject(bucket, object, {
          ...{ scratch, path, packed: false, signal, onBytes: watcher.move },
        }),
      );
      await scratch.drop(path);
    }
  } finally {
    bucket.client.destroy();
    await scratch.remove();
  }
}
