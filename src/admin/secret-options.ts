import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import type { Command } from 'commander';
import type { BucketAccess } from '../integrations/bucket-client.ts';
import { variableNamed } from '../platform/environment.ts';
import { describeFailure } from '../platform/format.ts';
import { Refusal } from './command.ts';

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
