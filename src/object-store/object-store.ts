import type { Readable } from 'node:stream';
import { shortened } from '../platform/format.ts';

/** A folder or the prefix of a bucket, which holds objects under keys: `2026/11/events-0001.ndjson.gz`. */
export interface ObjectStore {
  /** For messages: the folder, or `s3://bucket/prefix/`. */
  where: string;
  /**
   * Writes an object, or writes one over. Nobody ever sees a part of it: it is there once all of it is on disk, and after
   * a failure it is as it was before. Memory is bounded whatever its length.
   * @throws {ObjectStoreError} that names the object; what `from` fails with, as it is; the reason of the signal
   */
  put(key: string, from: AsyncIterable<Uint8Array>, options?: { signal?: AbortSignal }): Promise<Written>;
  /**
   * An object, or a part of it, as bytes that come as they are read. Whoever does not read to the end destroys it.
   * @throws {ObjectStoreError} `missing` when it is not there; the stream fails with one as well
   */
  get(key: string, options?: GetOptions): Promise<Readable>;
  /** @returns undefined when there is no such object */
  stat(key: string): Promise<StoredObject | undefined>;
  /** A page of the objects whose keys begin with the prefix, in the order of their keys. */
  list(prefix: string, page?: ListPage): Promise<{ objects: StoredObject[]; next: string | null }>;
  /** Whether or not it is there. */
  remove(key: string): Promise<void>;
  /** Removes what processes that died a day ago or earlier had not finished; absent: the store keeps no such parts. */
  sweep?(): Promise<void>;
  close(): void;
}

export interface Written {
  bytes: number;
  /** In hex. */
  sha256: string;
}

export interface StoredObject {
  key: string;
  bytes: number;
  modifiedAt: Date;
}

export interface GetOptions {
  /** Places of the first and the last byte, counted from 0. */
  range?: { first: number; last: number };
  signal?: AbortSignal;
}

export interface ListPage {
  /** The `next` of the page before. */
  after?: string;
  /** Most objects of the page; 1 to `MOST_LISTED`, which it is unless told. */
  limit?: number;
}

export const MOST_LISTED = 200;

/** Characters of a message. */
const MOST_MESSAGE = 2000;

/** What went wrong with a store; the message names the object or the place, and holds no secret. */
export class ObjectStoreError extends Error {
  override name = 'ObjectStoreError';
  readonly reason: ObjectStoreReason;

  constructor(reason: ObjectStoreReason, message: string, options?: ErrorOptions) {
    super(shortened(message, MOST_MESSAGE), options);
    this.reason = reason;
  }
}

/**
 * `config`: only its owner can mend it (address, key, permission, name of the bucket). `full`: there is no room.
 * `missing`: there is no such object. `failed`: of the moment, another try may do.
 */
export type ObjectStoreReason = 'config' | 'full' | 'missing' | 'failed';

const MOST_KEY = 512;
/** Neither empty nor hidden, and nothing that a folder, a bucket or an address would read as anything else. */
const PART = /^[A-Za-z0-9_=+@-][A-Za-z0-9_.=+@-]*$/;

/**
 * Keys are parts with a slash between them, of letters, digits and `_ - . = + @`; none begins with a dot, so that no key
 * leads out of the store.
 * @throws {ObjectStoreError} `config`
 */
export function requireKey(key: string): void {
  if (key.length <= MOST_KEY && key.split('/').every((part) => PART.test(part) && part.length <= 200)) return;
  throw new ObjectStoreError('config', `${JSON.stringify(key.slice(0, 80))} is not a valid key of an object`);
}

/** What a list may ask for: nothing, or the beginning of a key. @throws {ObjectStoreError} `config` */
export function requirePrefix(prefix: string): void {
  if (prefix !== '') requireKey(prefix.endsWith('/') ? prefix.slice(0, -1) : prefix);
}
