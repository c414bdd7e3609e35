import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  S3ServiceException,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import {
  type BucketAccess,
  connectBucket,
  type Patience,
  toSourceError,
} from '../integrations/bucket-client.ts';
import { SourceError } from '../integrations/source.ts';
import type { Reach } from '../platform/reach.ts';
import {
  type GetOptions,
  MOST_LISTED,
  type ObjectStore,
  ObjectStoreError,
  type ObjectStoreReason,
  type StoredObject,
  type Written,
} from './object-store.ts';

/** Bytes of a part, one of which is in memory at a time. S3 takes none under 5 MiB, but the last. */
const PART_BYTES = 8_388_608;
const MOST_PARTS = 10_000;

const patient: Patience = { connect: 10_000, silence: 60_000, list: 600_000, window: 60_000 };

export interface BucketStoreOptions {
  reach: Reach;
  patience?: Patience;
}

/** Objects beneath a prefix of a bucket. @throws {ObjectStoreError} `config` when the endpoint is refused */
export function openBucketStore(
  { bucket, prefix }: { bucket: string; prefix: string },
  { region, endpoint, credentials }: BucketAccess,
  { reach, patience = patient }: BucketStoreOptions,
): ObjectStore {
  const place = { type: 's3', bucket, prefix, region, ...(endpoint !== undefined && { endpoint }) } as const;
  const where = `s3://${bucket}/${prefix}`;
  const at = endpoint === undefined ? '' : ` at ${endpoint}`;
  const connected = (() => {
    try {
      return connectBucket(place, credentials, { reach, patience });
    } catch (error) {
      throw toStoreError(error, `${where}${at}`);
    }
  })();
  const { client } = connected;
  const addressOf = (key: string) => ({ Bucket: bucket, Key: prefix + key });

  /** One request; its failure in words that name the object. */
  async function asking<T>(key: string, sent: Promise<T>, signal?: AbortSignal): Promise<T> {
    try {
      return await sent;
    } catch (error) {
      signal?.throwIfAborted();
      throw toStoreError(error, `${where}${key}${at}`);
    }
  }

  /** Parts go one after the other; an object of one part goes as it is. */
  async function put(
    key: string,
    from: AsyncIterable<Uint8Array>,
    { signal }: { signal?: AbortSignal } = {},
  ): Promise<Written> {
    const address = addressOf(key);
    const options = signal ? { abortSignal: signal } : {};
    const hash = createHash('sha256');
    const parts: { PartNumber: number; ETag: string | undefined }[] = [];
    let bytes = 0;
    let UploadId: string | undefined;

    async function send(Body: Buffer, isLast: boolean): Promise<void> {
      hash.update(Body);
      bytes += Body.length;
      if (isLast && UploadId === undefined)
        return void (await asking(
          key,
          client.send(new PutObjectCommand({ ...address, Body }), options),
          signal,
        ));
      UploadId ??= (
        await asking(key, client.send(new CreateMultipartUploadCommand(address), options), signal)
      ).UploadId!;
      const PartNumber = parts.length + 1;
      if (PartNumber > MOST_PARTS)
        throw new ObjectStoreError(
          'full',
          `${where}${key}: it has more than ${MOST_PARTS} parts of ${PART_BYTES} bytes`,
        );
      const command = new UploadPartCommand({ ...address, UploadId, PartNumber, Body });
      const { ETag } = await asking(key, client.send(command, options), signal);
      parts.push({ PartNumber, ETag });
    }

    try {
      for await (const { part, isLast } of inParts(from, signal)) await send(part, isLast);
      if (UploadId !== undefined) {
        const command = new CompleteMultipartUploadCommand({
          ...address,
          ...{ UploadId, MultipartUpload: { Parts: parts } },
        });
        await asking(key, client.send(command, options), signal);
      }
    } catch (error) {
      // Without it the parts are kept, and paid for, until a rule of the bucket removes them.
      if (UploadId !== undefined)
        await client.send(new AbortMultipartUploadCommand({ ...address, UploadId })).catch(() => {});
      throw error;
    }
    return { bytes, sha256: hash.digest('hex') };
  }

  async function get(key: string, { range, signal }: GetOptions = {}): Promise<Readable> {
    const Range = range && `bytes=${range.first}-${range.last}`;
    const command = new GetObjectCommand({ ...addressOf(key), ...(Range !== undefined && { Range }) });
    const { Body, ContentLength } = await asking(
      key,
      client.send(command, signal ? { abortSignal: signal } : {}),
      signal,
    );
    const body = Body as Readable;
    // An error before the first read has no other listener.
    body.on('error', () => {});
    async function* whole(): AsyncGenerator<Buffer> {
      let bytes = 0;
      try {
        for await (const chunk of body) {
          bytes += chunk.length;
          yield chunk;
        }
      } catch (error) {
        signal?.throwIfAborted();
        throw toStoreError(error, `${where}${key}${at}`);
      }
      if (ContentLength !== undefined && bytes !== ContentLength)
        throw new ObjectStoreError(
          'failed',
          `${where}${key}${at}: it ended after ${bytes} of ${ContentLength} bytes`,
        );
    }
    // Nobody may have begun to read.
    return Readable.from(whole(), { objectMode: false }).once('close', () => void body.destroy());
  }

  return {
    where,
    put,
    get,
    async stat(key) {
      try {
        const found = await asking(key, client.send(new HeadObjectCommand(addressOf(key))));
        return { key, bytes: found.ContentLength ?? 0, modifiedAt: found.LastModified ?? new Date(0) };
      } catch (error) {
        if (error instanceof ObjectStoreError && error.reason === 'missing') return undefined;
        throw error;
      }
    },
    async list(beginning, { after, limit = MOST_LISTED } = {}) {
      const command = new ListObjectsV2Command({
        ...{ Bucket: bucket, Prefix: prefix + beginning },
        MaxKeys: Math.min(Math.max(limit, 1), MOST_LISTED),
        ...(after !== undefined && { StartAfter: prefix + after }),
      });
      const { Contents = [], IsTruncated } = await asking(beginning, client.send(command));
      const objects = Contents.map(
        ({ Key = '', Size = 0, LastModified = new Date(0) }): StoredObject => ({
          ...{ key: Key.slice(prefix.length), bytes: Size, modifiedAt: LastModified },
        }),
      );
      return { objects, next: IsTruncated ? (objects.at(-1)?.key ?? null) : null };
    },
    async remove(key) {
      await asking(key, client.send(new DeleteObjectCommand(addressOf(key))));
    },
    close: () => client.destroy(),
  };
}

/** The bytes as parts of one length, but the last, which may be empty when it is the only one. */
async function* inParts(
  from: AsyncIterable<Uint8Array>,
  signal: AbortSignal | undefined,
): AsyncGenerator<{ part: Buffer; isLast: boolean }> {
  let buffer = Buffer.allocUnsafe(PART_BYTES);
  let filled = 0;
  for await (const chunk of from) {
    signal?.throwIfAborted();
    for (let at = 0; at < chunk.length; ) {
      // Full, and more has come: it is not the last.
      if (filled === PART_BYTES) {
        yield { part: buffer, isLast: false };
        // The client may still look at the one before.
        buffer = Buffer.allocUnsafe(PART_BYTES);
        filled = 0;
      }
      const taken = Math.min(PART_BYTES - filled, chunk.length - at);
      buffer.set(chunk.subarray(at, at + taken), filled);
      filled += taken;
      at += taken;
    }
  }
  signal?.throwIfAborted();
  yield { part: buffer.subarray(0, filled), isLast: true };
}

function toStoreError(error: unknown, where: string): ObjectStoreError {
  if (error instanceof ObjectStoreError) return error;
  // A HEAD has no body, so that the service's own name of the error is not there.
  const status = error instanceof S3ServiceException ? error.$metadata.httpStatusCode : undefined;
  const isBucket = error instanceof Error && error.name === 'NoSuchBucket';
  const { reason, message } = toSourceError(error, where);
  if (error instanceof SourceError)
    return new ObjectStoreError(reason, `${where}: ${message}`, { cause: error });
  return new ObjectStoreError(reasonOf(status, isBucket) ?? reason, message, { cause: error });
}

function reasonOf(status: number | undefined, isBucket: boolean): ObjectStoreReason | undefined {
  if (status === 404) return isBucket ? 'config' : 'missing';
  // WebDAV's word, which services take that run on disks of their owner.
  return status === 507 ? 'full' : undefined;
}
