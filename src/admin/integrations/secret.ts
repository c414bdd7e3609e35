import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import type { Command } from 'commander';
import { describeFailure, Refusal } from '../refusal.ts';

/** Where a secret comes from. The command line is no place for one: every user of the machine can read it. */
export interface SecretOptions {
  secretEnv?: string;
  secretFile?: string;
}

export function addSecretOptions(command: Command): Command {
  return command
    .option('--secret-env <name>', 'environment variable that holds the password or secret access key')
    .option(
      '--secret-file <file>',
      'file that holds it; - reads it from stdin (default: asks on the terminal)',
    );
}

export function namesSecret({ secretEnv, secretFile }: SecretOptions): boolean {
  return secretEnv !== undefined || secretFile !== undefined;
}

/**
 * @param what for the question: `Password`
 * @throws {Refusal} when there is none
 */
export async function readSecret(options: SecretOptions, what: string): Promise<string> {
  const secret = (await find(options, what)).replace(/\r?\n$/, '');
  if (secret === '') throw new Refusal('the secret is empty');
  return secret;
}

async function find({ secretEnv, secretFile }: SecretOptions, what: string): Promise<string> {
  if (secretEnv !== undefined && secretFile !== undefined)
    throw new Refusal('give one of --secret-env and --secret-file');
  if (secretEnv !== undefined) {
    const value = process.env[secretEnv];
    if (value === undefined) throw new Refusal(`the environment has no variable ${secretEnv}`);
    return value;
  }
  if (secretFile === '-') return text(process.stdin);
  if (secretFile !== undefined) return readFile(secretFile);
  if (!process.stdin.isTTY)
    throw new Refusal('a secret is needed: name its place with --secret-env or --secret-file');
  return askFor(what);
}

function readFile(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new Refusal(`the file of --secret-file cannot be read: ${describeFailure(error)}`);
  }
}

/** Shows nothing of what is typed. */
async function askFor(what: string): Promise<string> {
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
