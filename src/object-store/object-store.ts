import type { Readable } from 'node:stream';
import { shortened } from '../platform/format.ts';

/**
 * A folder or a prefix of a bucket that contains objects under keys, for example
 * `2026/11/events-0001.ndjson.gz`.
 */
export interface ObjectStore {
  /** Name for messages: the folder, or `s3://bucket/prefix/`. */
  where: string;
  /**
   * Creates or replaces an object. The change is atomic: the object appears when it is completely on disk,
   * and stays unchanged after a failure. Memory is limited, whatever its length.
   * @throws {ObjectStoreError} naming the object; the unchanged error of `from`; the reason of the signal
   */
  put(key: string, from: AsyncIterable<Uint8Array>, options?: { signal?: AbortSignal }): Promise<Written>;
  /**
   * Returns an object or a range of it as a stream. A caller that does not read to the end must destroy the
   * stream.
   * @throws {ObjectStoreError} `missing` if the object does not exist; the stream may also fail with an
   * ObjectStoreError
   */
  get(key: string, options?: GetOptions): Promise<Readable>;
  /** @returns undefined if the object does not exist */
  stat(key: string): Promise<StoredObject | undefined>;
  /** Returns a page of the objects whose keys begin with the prefix, in the order of their keys. */
  list(prefix: string, page?: ListPage): Promise<{ objects: StoredObject[]; next: string | null }>;
  /** Removes an object if it exists. */
  remove(key: string): Promise<void>;
  /**
   * Removes incomplete objects that were written more than a day ago by processes that have died. Absent if
   * the store keeps no incomplete objects.
   */
  sweep?(): Promise<void>;
  close(): void;
}

export interface Written {
  bytes: number;
  /** SHA-256 in hex. */
  sha256: string;
}

export interface StoredObject {
  key: string;
  bytes: number;
  modifiedAt: Date;
}

export interface GetOptions {
  /** Offsets of the first and the last byte. */
  range?: { first: number; last: number };
  signal?: AbortSignal;
}

export interface ListPage {
  /** The `next` of the previous page. */
  after?: string;
  /** Maximum objects of the page, from 1 to `MAX_LISTED`, which is the default. */
  limit?: number;
}

export const MAX_LISTED = 200;

/** Maximum characters of a message. */
const MAX_MESSAGE = 2000;

/**
 * Thrown if an operation of a store failed. The message names the object or the location, and contains no
 * secret.
 */
export class ObjectStoreError extends Error {
  override name = 'ObjectStoreError';
  readonly reason: ObjectStoreReason;

  constructor(reason: ObjectStoreReason, message: string, options?: ErrorOptions) {
    super(shortened(message, MAX_MESSAGE), options);
    this.reason = reason;
  }
}

/**
 * `config`: only the owner can fix it (address, key, permission, name of the bucket). `full`: there is not
 * enough space. `missing`: the object does not exist. `failed`: a temporary error, so a retry may succeed.
 */
export type ObjectStoreReason = 'config' | 'full' | 'missing' | 'failed';

const MAX_KEY = 512;
/**
 * A part that is not empty, not hidden, and has no characters with a special meaning in folders, buckets or
 * URLs.
 */
const PART = /^[A-Za-z0-9_=+@-][A-Za-z0-9_.=+@-]*$/;

/**
 * Checks a key. Keys are parts separated by slashes, of letters, digits and `_ - . = + @`. A part must not
 * begin with a dot, so that no key leads out of the store.
 * @throws {ObjectStoreError} `config`
 */
export function requireKey(key: string): void {
  if (key.length <= MAX_KEY && key.split('/').every((part) => PART.test(part) && part.length <= 200)) return;
  throw new ObjectStoreError('config', `${JSON.stringify(key.slice(0, 80))} is not a valid key of an object`);
}

/** Checks the prefix of a list: empty, or the beginning of a key. @throws {ObjectStoreError} `config` */
export function requirePrefix(prefix: string): void {
  if (prefix !== '') requireKey(prefix.endsWith('/') ? prefix.slice(0, -1) : prefix);
}
