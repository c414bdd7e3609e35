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
  type TimeLimits,
  toSourceError,
} from '../integrations/bucket-client.ts';
import { SourceError } from '../integrations/source.ts';
import type { Reach } from '../platform/reach.ts';
import {
  type GetOptions,
  MAX_LISTED,
  type ObjectStore,
  ObjectStoreError,
  type ObjectStoreReason,
  type StoredObject,
  type Written,
} from './object-store.ts';

/**
 * Bytes of a part, one of which is in memory at a time. S3 requires at least 5 MiB, except for the last part.
 */
const PART_BYTES = 8_388_608;
const MAX_PARTS = 10_000;

const DEFAULT_LIMITS: TimeLimits = { connect: 10_000, silence: 60_000, list: 600_000, window: 60_000 };

export interface BucketStoreOptions {
  reach: Reach;
  patience?: TimeLimits;
}

/**
 * Opens the objects under a prefix of a bucket. @throws {ObjectStoreError} `config` if the endpoint is
 * refused
 */
export function openBucketStore(
  { bucket, prefix }: { bucket: string; prefix: string },
  { region, endpoint, credentials }: BucketAccess,
  { reach, patience = DEFAULT_LIMITS }: BucketStoreOptions,
): ObjectStore {
  const definition = {
    type: 's3',
    bucket,
    prefix,
    region,
    ...(endpoint !== undefined && { endpoint }),
  } as const;
  const where = `s3://${bucket}/${prefix}`;
  const at = endpoint === undefined ? '' : ` at ${endpoint}`;
  const connected = (() => {
    try {
      return connectBucket(definition, credentials, { reach, patience });
    } catch (error) {
      throw toStoreError(error, `${where}${at}`);
    }
  })();
  const { client } = connected;
  const addressOf = (key: string) => ({ Bucket: bucket, Key: prefix + key });

  /** Awaits a request and adds the name of the object to its error. */
  async function request<T>(key: string, sent: Promise<T>, signal?: AbortSignal): Promise<T> {
    try {
      return await sent;
    } catch (error) {
      signal?.throwIfAborted();
      throw toStoreError(error, `${where}${key}${at}`);
    }
  }

  /**
   * Uploads an object in parts, one after the other. An object of one part is uploaded with a single request.
   */
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
        return void (await request(
          key,
          client.send(new PutObjectCommand({ ...address, Body }), options),
          signal,
        ));
      UploadId ??= (
        await request(key, client.send(new CreateMultipartUploadCommand(address), options), signal)
      ).UploadId!;
      const PartNumber = parts.length + 1;
      if (PartNumber > MAX_PARTS)
        throw new ObjectStoreError(
          'full',
          `${where}${key}: it has more than ${MAX_PARTS} parts of ${PART_BYTES} bytes`,
        );
      const command = new UploadPartCommand({ ...address, UploadId, PartNumber, Body });
      const { ETag } = await request(key, client.send(command, options), signal);
      parts.push({ PartNumber, ETag });
    }

    try {
      for await (const { part, isLast } of toParts(from, signal)) await send(part, isLast);
      if (UploadId !== undefined) {
        const command = new CompleteMultipartUploadCommand({
          ...address,
          ...{ UploadId, MultipartUpload: { Parts: parts } },
        });
        await request(key, client.send(command, options), signal);
      }
    } catch (error) {
      // Otherwise the bucket would keep the parts, at a cost, until one of its lifecycle rules removes them.
      if (UploadId !== undefined)
        await client.send(new AbortMultipartUploadCommand({ ...address, UploadId })).catch(() => {});
      throw error;
    }
    return { bytes, sha256: hash.digest('hex') };
  }

  async function get(key: string, { range, signal }: GetOptions = {}): Promise<Readable> {
    const Range = range && `bytes=${range.first}-${range.last}`;
    const command = new GetObjectCommand({ ...addressOf(key), ...(Range !== undefined && { Range }) });
    const { Body, ContentLength } = await request(
      key,
      client.send(command, signal ? { abortSignal: signal } : {}),
      signal,
    );
    const body = Body as Readable;
    // Until the first read, an error would have no listener.
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
    // Destroy the body explicitly, because the generator does not run if the stream was never read.
    return Readable.from(whole(), { objectMode: false }).once('close', () => void body.destroy());
  }

  return {
    where,
    put,
    get,
    async stat(key) {
      try {
        const head = await request(key, client.send(new HeadObjectCommand(addressOf(key))));
        return { key, bytes: head.ContentLength ?? 0, modifiedAt: head.LastModified ?? new Date(0) };
      } catch (error) {
        if (error instanceof ObjectStoreError && error.reason === 'missing') return undefined;
        throw error;
      }
    },
    async list(beginning, { after, limit = MAX_LISTED } = {}) {
      const command = new ListObjectsV2Command({
        ...{ Bucket: bucket, Prefix: prefix + beginning },
        MaxKeys: Math.min(Math.max(limit, 1), MAX_LISTED),
        ...(after !== undefined && { StartAfter: prefix + after }),
      });
      const { Contents = [], IsTruncated } = await request(beginning, client.send(command));
      const objects = Contents.map(
        ({ Key = '', Size = 0, LastModified = new Date(0) }): StoredObject => ({
          ...{ key: Key.slice(prefix.length), bytes: Size, modifiedAt: LastModified },
        }),
      );
      return { objects, next: IsTruncated ? (objects.at(-1)?.key ?? null) : null };
    },
    async remove(key) {
      await request(key, client.send(new DeleteObjectCommand(addressOf(key))));
    },
    close: () => client.destroy(),
  };
}

/**
 * Splits bytes into parts of the same length. The last part may be shorter, and is empty if there are no
 * bytes.
 */
async function* toParts(
  from: AsyncIterable<Uint8Array>,
  signal: AbortSignal | undefined,
): AsyncGenerator<{ part: Buffer; isLast: boolean }> {
  let buffer = Buffer.allocUnsafe(PART_BYTES);
  let filled = 0;
  for await (const chunk of from) {
    signal?.throwIfAborted();
    for (let at = 0; at < chunk.length; ) {
      // The buffer is full and more bytes follow, so it is not the last part.
      if (filled === PART_BYTES) {
        yield { part: buffer, isLast: false };
        // The client may still use the previous buffer.
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
  // The response to a HEAD request has no body and therefore no error name of the service.
  const status = error instanceof S3ServiceException ? error.$metadata.httpStatusCode : undefined;
  const isBucket = error instanceof Error && error.name === 'NoSuchBucket';
  const { reason, message } = toSourceError(error, where);
  if (error instanceof SourceError)
    return new ObjectStoreError(reason, `${where}: ${message}`, { cause: error });
  return new ObjectStoreError(reasonOf(status, isBucket) ?? reason, message, { cause: error });
}

function reasonOf(status: number | undefined, isBucket: boolean): ObjectStoreReason | undefined {
  if (status === 404) return isBucket ? 'config' : 'missing';
  // Status of WebDAV that storage services on local disks use.
  return status === 507 ? 'full' : undefined;
}
