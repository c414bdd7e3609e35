import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { shortened } from '../platform/format.ts';
import type { OptionalPackage } from '../platform/optional-package.ts';
import type { Reach } from '../platform/reach.ts';

/**
 * A place that rows are synced from. To support another warehouse is to write one of these and to name it in
 * `open-source.ts`.
 */
export interface Source {
  /**
   * Name and type of the columns, as the source spells them.
   * @throws {SourceError} `config` when the table, view or path is not there or may not be read
   */
  describe(): Promise<SourceColumn[]>;
  /**
   * The rows with an UPDATED_AT of `since` or later, or all of them, in ascending order of UPDATED_AT, in batches.
   * Memory stays bounded whatever their number. A row the UPDATED_AT of which is no time comes with the others, in
   * no particular place.
   * @param since ISO 8601 in UTC to the microsecond, as in `updatedAt`
   * @throws {SourceError}
   */
  rowsSince(since: string | undefined, options: ReadOptions): AsyncIterable<SourceRow[]>;
  close(): Promise<void>;
}

/** How any source is opened. */
export interface SourceOptions {
  /** Wire name of the service's own id, and of its column. */
  serviceIdField: string;
  /** Bytes of disk that the files of one run may take, unpacked. */
  scratchBytes: number;
  /** Addresses that may be connected to. */
  reach: Reach;
  /** Gives up the opening, and with it `describe`. */
  signal?: AbortSignal;
}

export interface ReadOptions {
  /** Most rows in one batch. */
  batch: number;
  /** Ends the reading with its reason, also within a statement of the source. */
  signal: AbortSignal;
}

export interface SourceColumn {
  name: string;
  type: string;
}

/** One row: the columns that a sync knows, and nothing of the others. Null and absence are the same. */
export interface SourceRow {
  /** Always `YYYY-MM-DDTHH:MM:SS.ffffffZ`, so that texts compare as times do; absent when the value is no time. */
  updatedAt?: string;
  /**
   * What stood there, when it is no time: empty for null and absence. Of a line of a file that could not be read at all,
   * both parts of `broken`.
   */
  unreadable?: string;
  /** A line of a file that could not be read at all: the file, the line and the rule that it breaks; and what stands in it. */
  broken?: { reason: string; text: string };
  identifiers: Partial<Record<IdentifierColumn, string>>;
  /** JSON text as it stood there, or the value of a column of a structured type as JSON text. */
  payload?: string;
}

/** Lower-case names; columns are found whatever their case. The service's own id goes by its wire name. */
export type IdentifierColumn =
  | 'external_id'
  | 'alias_name'
  | 'alias_label'
  | 'service_id'
  | 'email'
  | 'phone';

/** Package that reaches buckets. Modules that import it are loaded when a bucket is opened. */
export const BUCKET_CLIENT: OptionalPackage = { name: '@aws-sdk/client-s3', users: 'S3 buckets' };

/** Characters of a message. */
const MOST_MESSAGE = 2000;

/** Why a source gives no rows. */
export class SourceError extends Error {
  override name = 'SourceError';
  readonly reason: 'config' | 'failed';

  /**
   * @param reason `config`: nobody but the owner can mend it (address, password, table, column); `failed`: the
   *   source did not answer, or stopped in the middle: another try may do
   * @param message for the owner: what is wrong and where; never a secret
   */
  constructor(reason: SourceError['reason'], message: string, options?: ErrorOptions) {
    super(shortened(message, MOST_MESSAGE), options);
    this.reason = reason;
  }
}

/** What a sync does with the rows. It cannot be changed later. */
export const kinds = ['attributes', 'events', 'purchases', 'deletes'] as const;
export type IntegrationKind = (typeof kinds)[number];

/** Where the rows are: the part of an integration that is no secret. */
export type SourceDefinition = PostgresDefinition | FolderDefinition | BucketDefinition;

const S3 = /^s3:\/\/([^/]+)\/?(.*)$/s;

/** Bucket and prefix (or key) of an address `s3://bucket/prefix`; undefined: it is none. */
export function s3PlaceOf(address: string): { bucket: string; prefix: string } | undefined {
  const [, bucket, prefix] = S3.exec(address) ?? [];
  return bucket === undefined || prefix === undefined ? undefined : { bucket, prefix };
}

/** Postgres, and what speaks its wire protocol. */
export interface PostgresDefinition {
  type: 'postgres';
  host: string;
  port: number;
  database: string;
  /** Table or view, with its schema if it is not on the search path: `exports.users`. */
  table: string;
  tls: 'off' | 'on' | 'verified';
}

export const fileFormats = ['csv', 'ndjson', 'parquet'] as const;
export type FileFormat = (typeof fileFormats)[number];

/** Every file of a format in a folder, or one file. */
export interface FolderDefinition {
  type: 'folder';
  path: string;
  format: FileFormat;
}

/** Every object of a format under a prefix of an S3-compatible bucket. */
export interface BucketDefinition {
  type: 's3';
  bucket: string;
  prefix: string;
  region: string;
  /** Of a service other than AWS. */
  endpoint?: string;
  format: FileFormat;
}

/** What opens the source, or a destination of streams; encrypted at rest. A folder has none. */
export type Credentials =
  | { user: string; password: string }
  | { access_key_id: string; secret_access_key: string }
  | { webhook_secret: string };

/** AES-256-GCM. */
const KEY_BYTES = 32;
const CIPHER = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** The first byte of what is stored: another way to encrypt gets another. */
const FORM = 1;

/** There is no key to encrypt with; the message says how to make one. */
export class NoIntegrationKey extends Error {
  override name = 'NoIntegrationKey';

  constructor() {
    super(
      'INTEGRATION_KEY is not set, and credentials are stored encrypted. Set it to the output of `openssl rand -base64 32`, to the same value for every process',
    );
  }
}

/** The keys of INTEGRATION_KEY, which has checked their form: base64 or hex, with commas between. */
export function keysOf(setting: string): Buffer[] {
  return setting
    .split(',')
    .filter((text) => text !== '')
    .map((text) => Buffer.from(text, text.length === 2 * KEY_BYTES ? 'hex' : 'base64'));
}

/**
 * Credentials as they are stored: they can be read with the key, and as those of this integration alone.
 *
 * @param keys the first one encrypts
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
 * @param keys each is tried
 * @throws {SourceError} `config` when none of them fits
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

/** Undefined: with another key, for another integration, or not whole. */
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

/** Whether the rows of two definitions are the same: another way to the same table is none of a second one. */
export function isSameSource(one: SourceDefinition, other: SourceDefinition): boolean {
  return keyOf(one) === keyOf(other);
}

function keyOf(source: SourceDefinition): string {
  switch (source.type) {
    case 'postgres': {
      const { host, port, database, table } = source;
      // What Postgres finds without a schema is in this one, unless somebody has changed that.
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
