import { readFileSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { type Command, Option } from 'commander';
import type { BucketAccess } from '../../integrations/bucket-client.ts';
import {
  type Credentials,
  type FileFormat,
  fileFormats,
  type SourceDefinition,
} from '../../integrations/source.ts';
import { variableNamed } from '../../platform/environment.ts';
import { describeFailure } from '../../platform/format.ts';
import { requireEndpoint } from '../../resources/source.ts';
import { parseCount, Refusal } from '../command.ts';

/** Sources of a secret. There is no option for the value, because all users of a machine can read command lines. */
export interface SecretOptions {
  secretEnv?: string;
  secretFile?: string;
}

export function addSecretOptions(
  command: Command,
  {
    variable = 'environment variable with the password or secret access key',
    file = 'file with it; - reads standard input (default: asks on the terminal)',
  } = {},
): Command {
  return command.option('--secret-env <name>', variable).option('--secret-file <file>', file);
}

export function namesSecret({ secretEnv, secretFile }: SecretOptions): boolean {
  return secretEnv !== undefined || secretFile !== undefined;
}

/**
 * Reads a secret from the variable or file that the options name, or else asks for it on the terminal.
 * @param what label of the prompt, for example `Password`
 * @throws {Refusal} if the secret is empty or its source cannot be read
 */
export async function readSecret(options: SecretOptions, what: string): Promise<string> {
  const secret = (await find(options, what)).replace(/\r?\n$/, '');
  if (secret === '') throw new Refusal('the secret is empty');
  return secret;
}

async function find({ secretEnv, secretFile }: SecretOptions, what: string): Promise<string> {
  if (secretEnv !== undefined && secretFile !== undefined)
    throw new Refusal('set one of --secret-env and --secret-file');
  if (secretEnv !== undefined) {
    const value = variableNamed(secretEnv);
    if (value === undefined) throw new Refusal(`the environment has no variable ${secretEnv}`);
    return value;
  }
  if (secretFile === '-') return text(process.stdin);
  if (secretFile !== undefined) return readFile(secretFile);
  if (!process.stdin.isTTY) throw new Refusal('a secret is required: set --secret-env or --secret-file');
  return promptFor(what);
}

function readFile(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new Refusal(`the file of --secret-file cannot be read: ${describeFailure(error)}`);
  }
}

/** Asks for a secret on the terminal without echoing the input. */
async function promptFor(what: string): Promise<string> {
  process.stderr.write(`${what}: `);
  const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });
  const terminal = createInterface({ input: process.stdin, output: nowhere, terminal: true });
  try {
    return await terminal.question('');
  } finally {
    terminal.close();
    process.stderr.write('\n');
  }
}

/** Returns the bucket credentials: the given access key id and its secret, which `readSecret` reads. */
export async function readKeyPair(
  options: SecretOptions,
  accessKeyId: string,
): Promise<BucketAccess['credentials']> {
  const secret_access_key = await readSecret(options, `Secret access key of ${accessKeyId}`);
  return { access_key_id: accessKeyId, secret_access_key };
}

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
    .addOption(new Option('--source <source>', 'kind of the source').choices(types).makeOptionMandatory())
    .option('--host <host>', 'postgres: host')
    .option('--port <number>', 'postgres: port', parseCount, 5432)
    .option('--database <database>', 'postgres: database')
    .option('--table <table>', 'postgres: table or view, for example exports.users')
    .addOption(
      new Option('--tls <tls>', 'postgres: encryption, and verification of the certificate')
        .choices(['off', 'on', 'verified'])
        .default('verified'),
    )
    .option('--user <user>', 'postgres: user name')
    .option('--path <path>', 'folder: path of a folder or file on the machine of the sync process')
    .addOption(new Option('--format <format>', 'folder, s3: format of the files').choices(fileFormats))
    .option('--bucket <bucket>', 's3: name of the bucket')
    .option('--prefix <prefix>', 's3: prefix of the object keys', '')
    .option('--region <region>', 's3: region of the bucket')
    .option('--endpoint <url>', 's3: address of an S3-compatible service (default: AWS)')
    .option('--access-key-id <id>', 's3: access key id');
  return addSecretOptions(command);
}

/**
 * Builds the source definition from the options.
 * @throws {Refusal} if an option is missing or invalid; the message lists all missing options
 */
export function readDefinition(options: SourceOptions): SourceDefinition {
  const { source: type, port, tls, prefix } = options;
  if (type === 'postgres') {
    const { host, database, table } = needed(options, 'host', 'database', 'table', 'user');
    if (port > LARGEST_PORT) throw new Refusal(`--port must be at most ${LARGEST_PORT}`);
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

/** Reads the credentials of the source; returns undefined for a folder, which needs no credentials. */
export async function readCredentials(options: SourceOptions): Promise<Credentials | undefined> {
  if (options.source === 'folder') return undefined;
  if (options.source === 'postgres') {
    const { user } = needed(options, 'user');
    return { user, password: await readSecret(options, `Password of ${user}`) };
  }
  const { accessKeyId } = needed(options, 'accessKeyId');
  return readKeyPair(options, accessKeyId);
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
