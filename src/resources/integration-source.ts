import path from 'node:path';
import {
  type Credentials,
  type FileFormat,
  fileFormats,
  type SourceDefinition,
} from '../integrations/source.ts';
import type { Actor } from '../store/audit.ts';
import { choice, optional, readCount, secret, text, type ValuesOf, withDefault } from './fields.ts';
import { InvalidValue, Refusal } from './refusal.ts';
import { requireEndpoint } from './source.ts';

const types = ['postgres', 'folder', 's3'] as const;
const tlsModes = ['off', 'on', 'verified'] as const;
const LARGEST_PORT = 65_535;

/** Maximum length in characters of a host, path, table or key prefix. */
const MAX_TEXT = 1000;

const plain = (label: string, help: string, value = 'text') =>
  optional(text({ label, help, value }, (given) => given, { maxLength: MAX_TEXT }));

function readPort(given: string): number {
  const port = readCount(given);
  if (port > LARGEST_PORT) throw new InvalidValue(`Must be at most ${LARGEST_PORT}.`);
  return port;
}

/** Source of an integration, as command options and form fields. */
export const sourceFields = {
  source: choice({ label: 'Source', help: 'kind of the source', value: 'source' }, types),
  host: plain('Postgres host', 'postgres: host', 'host'),
  port: withDefault(
    text({ label: 'Postgres port', help: 'postgres: port', value: 'number' }, readPort),
    5432,
  ),
  database: plain('Postgres database', 'postgres: database', 'database'),
  table: plain('Postgres table', 'postgres: table or view, for example exports.users', 'table'),
  tls: withDefault(
    choice<(typeof tlsModes)[number]>(
      {
        label: 'Postgres TLS',
        help: 'postgres: encryption, and verification of the certificate',
        value: 'tls',
      },
      tlsModes,
    ),
    'verified',
  ),
  user: plain('Postgres user', 'postgres: user name', 'user'),
  path: plain('Folder', 'folder: path of a folder or file on the machine of the sync process', 'path'),
  format: optional(
    choice<FileFormat>(
      { label: 'Format of the files', help: 'folder, s3: format of the files', value: 'format' },
      fileFormats,
    ),
  ),
  bucket: plain('S3 bucket', 's3: name of the bucket', 'bucket'),
  prefix: withDefault(
    text({ label: 'S3 prefix', help: 's3: prefix of the object keys', value: 'prefix' }, (given) => given, {
      maxLength: MAX_TEXT,
    }),
    '',
  ),
  region: plain('S3 region', 's3: region of the bucket', 'region'),
  endpoint: plain('S3 endpoint', 's3: address of an S3-compatible service (default: AWS)', 'url'),
  access_key_id: plain('S3 access key id', 's3: access key id', 'id'),
  secret: secret({ label: 'Password or secret access key', help: 'password or secret access key' }),
};

export type SourceValues = ValuesOf<typeof sourceFields>;

/**
 * Builds the source definition from the values.
 * @throws {Refusal} if a value is missing or invalid; the message lists all missing values
 */
export function readDefinition(values: SourceValues, actor: Actor): SourceDefinition {
  const { source: type, port, tls, prefix, endpoint } = values;
  const needed = needing(values, actor);
  if (type === 'postgres') {
    const { host, database, table } = needed('host', 'database', 'table', 'user');
    return { type, host, port, database, table, tls };
  }
  if (type === 'folder') {
    // Folders belong to the operator, and not to a workspace.
    if (actor.kind !== 'operator')
      throw new Refusal(
        'only BOARD_USER and the command line can create an integration of a folder',
        'source',
      );
    const { path: given, format } = needed('path', 'format');
    return { type, path: path.resolve(given), format };
  }
  const { bucket, region, format } = needed('bucket', 'region', 'format', 'access_key_id');
  if (endpoint !== undefined) requireEndpoint(endpoint);
  return { type, bucket, prefix, region, ...(endpoint !== undefined && { endpoint }), format };
}

/** Reads the credentials of the source; returns undefined for a folder, which needs no credentials. */
export async function readCredentials(values: SourceValues, actor: Actor): Promise<Credentials | undefined> {
  const { source, secret: given } = values;
  const needed = needing(values, actor);
  if (source === 'folder') return undefined;
  if (source === 'postgres') {
    const { user } = needed('user');
    return { user, password: await given.read(`Password of ${user}`) };
  }
  const { access_key_id } = needed('access_key_id');
  const secret_access_key = await given.read(`Secret access key of ${access_key_id}`);
  return { access_key_id, secret_access_key };
}

/** Returns a function that returns the named values. It throws a Refusal if some are missing. */
function needing(values: SourceValues, { via }: Actor) {
  return <Name extends keyof SourceValues & string>(
    ...names: Name[]
  ): { [K in Name]: NonNullable<SourceValues[K]> } => {
    const missing = names.filter((name) => values[name] === undefined);
    if (missing.length > 0) {
      const flags = missing.map((name) => `--${name.replaceAll('_', '-')}`).join(', ');
      const labels = missing.map((name) => sourceFields[name].label).join(', ');
      const message =
        via === 'console'
          ? `a source of this kind needs: ${labels}`
          : `--source ${values.source} needs ${flags}`;
      throw new Refusal(message, missing[0]);
    }
    return values as { [K in Name]: NonNullable<SourceValues[K]> };
  };
}

/** Describes the location of a source for operators, without credentials. */
export function whereIs(source: SourceDefinition): string {
  if (source.type === 'postgres') return `${source.host}:${source.port}/${source.database} ${source.table}`;
  if (source.type === 'folder') return `${source.path} (${source.format})`;
  return `s3://${source.bucket}/${source.prefix} (${source.format})`;
}
