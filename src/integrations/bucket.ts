import { Readable } from 'node:stream';
import { GetObjectCommand, NoSuchKey, paginateListObjectsV2 } from '@aws-sdk/client-s3';
import { poll } from '../platform/poll.ts';
import { runStep, unwatched, type Watcher } from '../platform/steps.ts';
import { linkSignals } from '../platform/time-limit.ts';
import {
  type Bucket,
  type BucketPlace,
  connectBucket,
  PAGE_KEYS,
  type Patience,
  toSourceError,
} from './bucket-client.ts';
import { type InputFile, inputPath, isOfFormat, isPacked, MOST_FILES } from './files/input.ts';
import { bringIn, createScratch, freeOf, MOST_OF_FREE, type Scratch } from './files/scratch.ts';
import { type Files, openFiles } from './files-source.ts';
import {
  type BucketDefinition,
  type Credentials,
  type FileFormat,
  type Source,
  SourceError,
  type SourceOptions,
} from './source.ts';

/** Objects that are fetched at a time. */
const AT_A_TIME = 4;

/** Pages of a list, of whatever objects. */
const MOST_PAGES = 10_000;

/** An object that brings less in a while is given up: 1 KiB a second, with the patience that there is. */
const MOST_SLOW_BYTES = 61_440;

export interface BucketObject {
  key: string;
  size: number;
  /** Epoch milliseconds. */
  modifiedAt: number;
}

/** Which objects of a list are meant, and what they are called. */
interface Meant {
  what: string;
  isMeant(key: string): boolean;
}

/**
 * The objects under the prefix that are meant, by key.
 * @throws {SourceError} `config` when there is none, or too many; `failed` when the list does not end in time
 */
async function listObjects(
  bucket: Bucket,
  { what, isMeant }: Meant,
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
      if (page > MOST_PAGES || objects.length > MOST_FILES)
        throw new SourceError(
          'config',
          `${bucket.where}: the list under the prefix "${prefix}" is too long (${MOST_FILES} matching objects, ${MOST_PAGES} pages); use a longer prefix`,
        );
      for (const { Key: key = '', Size: size = 0, LastModified } of Contents)
        if (isMeant(key)) objects.push({ key, size, modifiedAt: LastModified?.getTime() ?? 0 });
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

/** Objects as files: the newest is enough to know the columns by. */
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
    const known = fetched.get(object.key);
    if (known) return known;
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
      const fetchers = Array.from({ length: AT_A_TIME }, async () => {
        for (const object of queue) {
          either.throwIfAborted();
          files.push(await fetchOnce(object, either));
        }
      });
      // The others are waited for, so that nothing is written into a folder that is being removed.
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
  if (needed <= free * MOST_OF_FREE) return;
  throw new SourceError(
    'failed',
    `${where}: ${objects.length} objects have ${needed} bytes, but the disk of ${scratch.path} has only ${free} bytes free, of which they can use ${MOST_OF_FREE * 100} %`,
  );
}

interface Fetching {
  scratch: Scratch;
  path: string;
  /** It is unpacked on its way. */
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
    // An error before the first read has no other listener.
    body.on('error', () => {});
    const from = Readable.from(watched(body, bounds, onBytes));
    await bringIn(scratch, { from, name, to: path, packed, signal });
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

/** The bytes of an object, as long as they come, and no more than the list has said. */
async function* watched(
  body: Readable,
  { name, size, patience }: { name: string; size: number; patience: Patience },
  onBytes?: (bytes: number) => void,
): AsyncGenerator<Buffer> {
  let [bytes, looked] = [0, 0];
  const looks = poll(patience.window, () => {
    if (bytes - looked < MOST_SLOW_BYTES) {
      const slow = `${name} is too slow: ${bytes - looked} bytes arrived in ${patience.window} ms`;
      body.destroy(new SourceError('failed', slow));
    }
    looked = bytes;
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
    void looks.stop();
  }
}

const patient: Patience = { connect: 10_000, silence: 60_000, list: 600_000, window: 60_000 };

/**
 * Every object of a format under a prefix of an S3-compatible bucket. Objects are fetched to the scratch folder and read
 * there as files are: a file may hold any UPDATED_AT, whenever it was written, so that all of them are.
 * @throws {SourceError} `config` for a wrong key, bucket or endpoint, and when there is no object
 */
export function openBucket(
  definition: BucketDefinition,
  credentials: Extract<Credentials, { access_key_id: string }>,
  { patience = patient, ...options }: SourceOptions & { patience?: Patience },
): Promise<Source> {
  return openFiles(definition.format, options, async (scratch) => {
    const bucket = connectBucket(definition, credentials, { reach: options.reach, patience });
    try {
      const { format, prefix } = definition;
      // What is behind the last slash of the prefix counts: the owner has named the rest.
      const isMeant = (key: string) => isOfFormat(key.slice(prefix.lastIndexOf('/') + 1), format);
      const objects = await listObjects(bucket, { what: `${format} object`, isMeant }, options.signal);
      return objectFiles(bucket, objects, { scratch, format, signal: options.signal });
    } catch (error) {
      bucket.client.destroy();
      throw error;
    }
  });
}

/** An object that was fetched as it lies there, for as long as nobody asks for the next. */
export interface FetchedObject {
  /** As `s3://bucket/key`. */
  name: string;
  path: string;
}

type FetchOptions = Omit<SourceOptions, 'serviceIdField'> & { patience?: Patience; watcher?: Watcher };

/**
 * Objects of a bucket, one after the other, by key: the one whose key is the prefix; those beneath it, if it is empty or
 * ends in a slash. What begins with a dot or an underscore is somebody's unfinished work.
 * @throws {SourceError} `config` for a wrong key, bucket or endpoint, and when there is no object
 */
export async function* fetchObjects(
  place: BucketPlace,
  credentials: Extract<Credentials, { access_key_id: string }>,
  { patience = patient, watcher = unwatched, ...options }: FetchOptions,
): AsyncGenerator<FetchedObject> {
  const { prefix } = place;
  const { signal } = options;
  const isFolder = prefix === '' || prefix.endsWith('/');
  const isMeant = (key: string) =>
    isFolder ? !/(^|\/)([._]|$)/.test(key.slice(prefix.length)) : key === prefix;
  const scratch = await createScratch(options.scratchBytes);
  const bucket = connectBucket(place, credentials, { reach: options.reach, patience });
  try {
    for (const object of await listObjects(bucket, { what: 'object', isMeant }, signal)) {
      await requireSpace(bucket, [object], scratch);
      const path = `${scratch.inputs}/object`;
      const name = `s3://${place.bucket}/${object.key}`;
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
