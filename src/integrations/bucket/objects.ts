import { createWriteStream } from 'node:fs';
import { statfs } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { GetObjectCommand, NoSuchKey, paginateListObjectsV2 } from '@aws-sdk/client-s3';
import { type InputFile, inputPath, isOfFormat } from '../files/input-files.ts';
import type { Scratch } from '../files/scratch.ts';
import type { Files } from '../files-source.ts';
import { SourceError } from '../source.ts';
import { type Bucket, toSourceError } from './client.ts';

/** Objects that are fetched at a time. */
const AT_A_TIME = 4;
/** Part of the free disk that objects may take; the rest is for sorting and for others. */
const MOST_OF_FREE = 0.8;

export interface BucketObject {
  key: string;
  size: number;
  /** Epoch milliseconds. */
  modifiedAt: number;
}

/**
 * The objects of the format under the prefix, by key.
 * @throws {SourceError} `config` when there is none
 */
export async function listObjects(bucket: Bucket): Promise<BucketObject[]> {
  const { prefix, format } = bucket.definition;
  const objects: BucketObject[] = [];
  try {
    const pages = paginateListObjectsV2(
      { client: bucket.client },
      { Bucket: bucket.definition.bucket, Prefix: prefix },
    );
    for await (const { Contents = [] } of pages) {
      for (const { Key: key = '', Size: size = 0, LastModified } of Contents) {
        // What is behind the last slash of the prefix counts: the owner has named the rest.
        const name = key.slice(prefix.lastIndexOf('/') + 1);
        if (isOfFormat(name, format)) objects.push({ key, size, modifiedAt: LastModified?.getTime() ?? 0 });
      }
    }
  } catch (error) {
    throw toSourceError(error, bucket);
  }
  if (objects.length > 0) return objects;
  throw new SourceError(
    'config',
    `${bucket.where}: there is no ${format} object under the prefix "${prefix}"`,
  );
}

/** Objects as files: the newest is enough to know the columns by. */
export function objectFiles(bucket: Bucket, objects: readonly BucketObject[], scratch: Scratch): Files {
  const fetched = new Map<string, Promise<InputFile>>();
  function fetchOnce(object: BucketObject, signal?: AbortSignal): Promise<InputFile> {
    const known = fetched.get(object.key);
    if (known) return known;
    const path = inputPath(scratch, fetched.size, object.key, bucket.definition.format);
    const fetching = fetchObject(bucket, object, path, signal);
    fetched.set(object.key, fetching);
    fetching.catch(() => fetched.delete(object.key));
    return fetching;
  }
  return {
    elsewhere: [],
    release: () => bucket.client.destroy(),
    async forColumns() {
      const full = objects.filter(({ size }) => size > 0);
      const newest = (full.length > 0 ? full : objects).reduce((one, other) =>
        other.modifiedAt > one.modifiedAt ? other : one,
      );
      await requireSpace(bucket, [newest], scratch);
      return [await fetchOnce(newest)];
    },
    async all(signal) {
      const missing = objects.filter(({ key }) => !fetched.has(key));
      await requireSpace(bucket, missing, scratch);
      const queue = objects.values();
      const files: InputFile[] = [];
      const failed = new AbortController();
      const either = AbortSignal.any([signal, failed.signal]);
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
  const { bavail, bsize } = await statfs(scratch.path);
  const free = bavail * bsize;
  if (needed <= free * MOST_OF_FREE) return;
  throw new SourceError(
    'failed',
    `${where}: ${objects.length} objects have ${needed} bytes, but the disk of ${scratch.path} has only ${free} free, of which they may take ${MOST_OF_FREE * 100} %`,
  );
}

async function fetchObject(
  bucket: Bucket,
  object: BucketObject,
  path: string,
  signal: AbortSignal | undefined,
): Promise<InputFile> {
  const name = `s3://${bucket.definition.bucket}/${object.key}`;
  try {
    const options = signal ? { abortSignal: signal } : {};
    const command = new GetObjectCommand({ Bucket: bucket.definition.bucket, Key: object.key });
    const { Body } = await bucket.client.send(command, options);
    await pipeline(
      Body as Readable,
      createWriteStream(path, { mode: 0o600 }),
      options.abortSignal ? { signal: options.abortSignal } : {},
    );
    return { name, path };
  } catch (error) {
    signal?.throwIfAborted();
    if (error instanceof NoSuchKey) {
      throw new SourceError('failed', `${name} was deleted while the bucket was read`, { cause: error });
    }
    throw toSourceError(error, bucket);
  }
}
