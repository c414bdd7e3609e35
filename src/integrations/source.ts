import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { shortened } from '../platform/format.ts';
import type { OptionalPackage } from '../platform/optional-package.ts';
import type { Reach } from '../platform/reach.ts';

/**
 * A source of rows for syncs. To support another warehouse, implement this interface and add it to
 * `open-source.ts`.
 */
export interface Source {
  /**
   * Returns name and type of the columns, as the source spells them.
   * @throws {SourceError} `config` if the table, view or path does not exist or may not be read
   */
  describe(): Promise<SourceColumn[]>;
  /**
   * Yields the rows with an UPDATED_AT of `since` or later, or all rows, in ascending order of UPDATED_AT, in
   * batches. Memory is limited, whatever the number of rows. Rows whose UPDATED_AT is not a valid time are
   * included at any position.
   * @param since ISO 8601 in UTC to the microsecond, as in `updatedAt`
   * @throws {SourceError}
   */
  rowsSince(since: string | undefined, options: ReadOptions): AsyncIterable<SourceRow[]>;
  close(): Promise<void>;
}

/** Options for opening a source. */
export interface SourceOptions {
  /** API name of the service id, and name of its column. */
  serviceIdField: string;
  /** Maximum bytes of disk for the decompressed files of one run. */
  scratchBytes: number;
  /** Addresses that may be connected to. */
  reach: Reach;
  /** Aborts the opening and `describe`. */
  signal?: AbortSignal;
}

export interface ReadOptions {
  /** Maximum rows of a batch. */
  batch: number;
  /** Aborts the reading with its reason, also during a statement of the source. */
  signal: AbortSignal;
}

export interface SourceColumn {
  name: string;
  type: string;
}

/** A row with the columns that a sync uses. Null and absent values are the same. */
export interface SourceRow {
  /**
   * UPDATED_AT, always as `YYYY-MM-DDTHH:MM:SS.ffffffZ`, so that texts sort like times; absent if it is not a
   * valid time.
   */
  updatedAt?: string;
  /**
   * Original text of an UPDATED_AT that is not a valid time, empty if it is null or absent. For a line of a
   * file that could not be read at all, both parts of `broken`.
   */
  unreadable?: string;
  /**
   * A line of a file that could not be read at all. `reason` names the file, the line and the violated rule;
   * `text` is the line.
   */
  broken?: { reason: string; text: string };
  identifiers: Partial<Record<IdentifierColumn, string>>;
  /** JSON text, unchanged, or the value of a column with a structured type as JSON text. */
  payload?: string;
}

/**
 * Identifier columns in lower case. Column names are matched regardless of case. The service id has its API
 * name in the source.
 */
export type IdentifierColumn =
  | 'external_id'
  | 'alias_name'
  | 'alias_label'
  | 'service_id'
  | 'email'
  | 'phone';

/** Package for S3 buckets. Modules that import it are loaded when a bucket is opened. */
export const BUCKET_CLIENT: OptionalPackage = { name: '@aws-sdk/client-s3', users: 'S3 buckets' };

/** Maximum characters of a message. */
const MAX_MESSAGE = 2000;

/** Thrown if a source cannot be read. */
export class SourceError extends Error {
  override name = 'SourceError';
  readonly reason: 'config' | 'failed';

  /**
   * @param reason `config` if only the owner can fix the cause (address, password, table, column); `failed`
   * if the source did not respond or stopped, so that a retry may succeed
   * @param message cause and location for the owner, without secrets
   */
  constructor(reason: SourceError['reason'], message: string, options?: ErrorOptions) {
    super(shortened(message, MAX_MESSAGE), options);
    this.reason = reason;
  }
}

/** The effect of the rows of a sync. It cannot be changed later. */
export const kinds = ['attributes', 'events', 'purchases', 'deletes'] as const;
export type IntegrationKind = (typeof kinds)[number];

/** Location of the rows: the part of an integration that is not secret. */
export type SourceDefinition = PostgresDefinition | FolderDefinition | BucketDefinition;

const S3 = /^s3:\/\/([^/]+)\/?(.*)$/s;

/** Returns bucket and prefix (or key) of an address `s3://bucket/prefix`; undefined for other addresses. */
export function parseS3Address(address: string): { bucket: string; prefix: string } | undefined {
  const [, bucket, prefix] = S3.exec(address) ?? [];
  return bucket === undefined || prefix === undefined ? undefined : { bucket, prefix };
}

/** Postgres, or a server with its wire protocol. */
export interface PostgresDefinition {
  type: 'postgres';
  host: string;
  port: number;
  database: string;
  /** Table or view, with its schema if that is not on the search path, for example `exports.users`. */
  table: string;
  tls: 'off' | 'on' | 'verified';
}

export const fileFormats = ['csv', 'ndjson', 'parquet'] as const;
export type FileFormat = (typeof fileFormats)[number];

/** All files of a format in a folder, or one file. */
export interface FolderDefinition {
  type: 'folder';
  path: string;
  format: FileFormat;
}

/** All objects of a format under a prefix of an S3-compatible bucket. */
export interface BucketDefinition {
  type: 's3';
  bucket: string;
  prefix: string;
  region: string;
  /** Endpoint of a service other than AWS. */
  endpoint?: string;
  format: FileFormat;
}

/**
 * Credentials of a source or of a stream destination, which are encrypted at rest. A folder has no
 * credentials.
 */
export type Credentials =
  | { user: string; password: string }
  | { access_key_id: string; secret_access_key: string }
  | { webhook_secret: string };

/** Lengths of AES-256-GCM in bytes. */
const KEY_BYTES = 32;
const CIPHER = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** First byte of stored credentials. Another encryption would use another value. */
const FORM = 1;

/** Thrown if there is no key for the encryption. The message explains how to create one. */
export class NoIntegrationKey extends Error {
  override name = 'NoIntegrationKey';

  constructor() {
    super(
      'INTEGRATION_KEY is not set, and credentials are stored encrypted. Set it to the output of `openssl rand -base64 32`, to the same value for every process',
    );
  }
}

/**
 * Parses the keys of INTEGRATION_KEY: base64 or hex, separated by commas. The format was validated with the
 * settings.
 */
export function keysOf(setting: string): Buffer[] {
  return setting
    .split(',')
    .filter((text) => text !== '')
    .map((text) => Buffer.from(text, text.length === 2 * KEY_BYTES ? 'hex' : 'base64'));
}

/**
 * Encrypts credentials for storage. They can be decrypted only with the key and for the same integration.
 *
 * @param keys the first key is used
 * @throws {NoIntegrationKey}
 */
export function encryptCredentials(
  credentials: Credentials,
  integrationId: string,
  [key]: readonly Buffer[],
): Buffer {
  if (!key) throw new NoIntegrationKey();
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(CIPHER, key, nonce).setAAD(Buffer.from(integrationId));
  const text = Buffer.concat([cipher.update(JSON.stringify(credentials), 'utf8'), cipher.final()]);
  return Buffer.concat([Buffer.of(FORM), nonce, cipher.getAuthTag(), text]);
}

/**
 * Decrypts stored credentials.
 * @param keys all keys are tried
 * @throws {SourceError} `config` if no key fits
 */
export function decryptCredentials(
  stored: Uint8Array,
  integrationId: string,
  keys: readonly Buffer[],
): Credentials {
  for (const key of keys) {
    const text = decrypt(stored, integrationId, key);
    if (text !== undefined) return JSON.parse(text);
  }
  throw new SourceError(
    'config',
    keys.length > 0
      ? 'the credentials cannot be decrypted: INTEGRATION_KEY does not contain the key that encrypted them'
      : 'the credentials cannot be decrypted: INTEGRATION_KEY is not set for this process',
  );
}

/** Returns undefined for a wrong key, another integration, or truncated data. */
function decrypt(stored: Uint8Array, integrationId: string, key: Buffer): string | undefined {
  const head = 1 + NONCE_BYTES;
  if (stored[0] !== FORM || stored.length < head + TAG_BYTES) return undefined;
  const decipher = createDecipheriv(CIPHER, key, stored.subarray(1, head), { authTagLength: TAG_BYTES })
    .setAAD(Buffer.from(integrationId))
    .setAuthTag(stored.subarray(head, head + TAG_BYTES));
  try {
    return Buffer.concat([decipher.update(stored.subarray(head + TAG_BYTES)), decipher.final()]).toString(
      'utf8',
    );
  } catch {
    return undefined;
  }
}

/**
 * Returns whether two definitions refer to the same rows. Different access to the same table does not make a
 * different source.
 */
export function isSameSource(one: SourceDefinition, other: SourceDefinition): boolean {
  return keyOf(one) === keyOf(other);
}

function keyOf(source: SourceDefinition): string {
  switch (source.type) {
    case 'postgres': {
      const { host, port, database, table } = source;
      // Postgres resolves names without a schema in `public`, unless the search path was changed.
      return JSON.stringify([
        host.toLowerCase(),
        port,
        database,
        table.replace(/^public\./i, '').toLowerCase(),
      ]);
    }
    case 'folder':
      return JSON.stringify([source.path, source.format]);
    case 's3':
      return JSON.stringify([source.endpoint ?? '', source.bucket, source.prefix, source.format]);
  }
}
