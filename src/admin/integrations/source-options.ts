import path from 'node:path';
import { type Command, Option } from 'commander';
import type { Credentials, FileFormat, SourceDefinition } from '../../integrations/definition.ts';
import { fileFormats } from '../../integrations/definition.ts';
import { parseCount } from '../arguments.ts';
import { Refusal } from '../refusal.ts';
import { addSecretOptions, readSecret, type SecretOptions } from './secret.ts';

const types = ['postgres', 'folder', 's3'] as const;
const LARGEST_PORT = 65_535;

export interface SourceOptions extends SecretOptions {
  source: (typeof types)[number];
  host?: string;
  port: number;
  database?: string;
  table?: string;
  tls: 'off' | 'on' | 'verified';
  user?: string;
  path?: string;
  format?: FileFormat;
  bucket?: string;
  prefix: string;
  region?: string;
  endpoint?: string;
  accessKeyId?: string;
}

export function addSourceOptions(command: Command): Command {
  command
    .addOption(new Option('--source <source>', 'where the rows are').choices(types).makeOptionMandatory())
    .option('--host <host>', 'postgres: its address')
    .option('--port <number>', 'postgres: its port', parseCount, 5432)
    .option('--database <database>', 'postgres: database of the table')
    .option('--table <table>', 'postgres: table or view, with its schema if need be: exports.users')
    .addOption(
      new Option('--tls <tls>', 'postgres: whether the connection is encrypted, and its certificate verified')
        .choices(['off', 'on', 'verified'])
        .default('verified'),
    )
    .option('--user <user>', 'postgres: who reads it')
    .option('--path <path>', 'folder: a folder or one file, where the sync process runs')
    .addOption(new Option('--format <format>', 'folder, s3: format of the files').choices(fileFormats))
    .option('--bucket <bucket>', 's3: name of the bucket')
    .option('--prefix <prefix>', 's3: how the names of its objects begin', '')
    .option('--region <region>', 's3: region of the bucket')
    .option('--endpoint <url>', 's3: address of a service other than AWS')
    .option('--access-key-id <id>', 's3: who reads it');
  return addSecretOptions(command);
}

/**
 * What the options name.
 * @throws {Refusal} naming each one that is missing
 */
export function readDefinition(options: SourceOptions): SourceDefinition {
  const { source: type, port, tls, prefix } = options;
  if (type === 'postgres') {
    const { host, database, table } = needed(options, 'host', 'database', 'table', 'user');
    if (port > LARGEST_PORT) throw new Refusal(`--port is at most ${LARGEST_PORT}`);
    return { type, host, port, database, table, tls };
  }
  if (type === 'folder') {
    const { path: given, format } = needed(options, 'path', 'format');
    return { type, path: path.resolve(given), format };
  }
  const { bucket, region, format } = needed(options, 'bucket', 'region', 'format', 'accessKeyId');
  const { endpoint } = options;
  if (endpoint !== undefined) requireEndpoint(endpoint);
  return { type, bucket, prefix, region, ...(endpoint !== undefined && { endpoint }), format };
}

/** A definition is shown as it is: a name or a password in it would be too. */
function requireEndpoint(endpoint: string): void {
  const { protocol, username, password } = URL.canParse(endpoint)
    ? new URL(endpoint)
    : { protocol: '', username: '', password: '' };
  if (!/^https?:$/.test(protocol) || username !== '' || password !== '')
    throw new Refusal(
      '--endpoint is a URL that starts with http:// or https://, without a user or a password',
    );
}

/** What opens it; undefined: it takes nothing. */
export async function readCredentials(options: SourceOptions): Promise<Credentials | undefined> {
  if (options.source === 'folder') return undefined;
  if (options.source === 'postgres') {
    const { user } = needed(options, 'user');
    return { user, password: await readSecret(options, `Password of ${user}`) };
  }
  const { accessKeyId } = needed(options, 'accessKeyId');
  return {
    access_key_id: accessKeyId,
    secret_access_key: await readSecret(options, `Secret access key of ${accessKeyId}`),
  };
}

function needed<Name extends keyof SourceOptions>(
  options: SourceOptions,
  ...names: Name[]
): { [K in Name]: NonNullable<SourceOptions[K]> } {
  const missing = names.filter((name) => options[name] === undefined);
  if (missing.length > 0) {
    const flags = missing.map(
      (name) => `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`,
    );
    throw new Refusal(`--source ${options.source} needs ${flags.join(', ')}`);
  }
  return options as { [K in Name]: NonNullable<SourceOptions[K]> };
}
