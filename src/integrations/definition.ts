/** What a sync does with the rows. It cannot be changed later. */
export const kinds = ['attributes', 'events', 'purchases', 'deletes'] as const;
export type IntegrationKind = (typeof kinds)[number];

/** Where the rows are: the part of an integration that is no secret. */
export type SourceDefinition = PostgresDefinition | FolderDefinition | BucketDefinition;

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

/** What opens the source; encrypted at rest. A folder has none. */
export type Credentials =
  | { user: string; password: string }
  | { access_key_id: string; secret_access_key: string };
