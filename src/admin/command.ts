import path from 'node:path';
import { type Command, InvalidArgumentError } from 'commander';
import { DateTime } from 'luxon';
import { validate } from 'uuid';
import { startedByNpm } from '../platform/environment.ts';
import { codeOf } from '../platform/format.ts';
import { isAddressOrSubnet } from '../platform/listen.ts';
import { MAX_EXTERNAL_ID_BYTES } from '../profile/identifier.ts';
import { type Permission, permissions, workspacePermissions } from '../schemas/permissions.ts';

/** The files of the command; within another program it has its plain name. */
const OWN_FILES = ['cli.js', 'penstock', 'penstock.cjs'];

/**
 * How the person at the command line has called this command, so that what a hint says can be typed as it stands. By
 * npx or npm run in the project's folder, or by its name where that is on the PATH.
 */
export const PENSTOCK = OWN_FILES.includes(path.basename(process.argv[1] ?? ''))
  ? commandName(startedByNpm().command)
  : 'penstock';

function commandName(npmCommand: string | undefined): string {
  if (npmCommand === 'exec') return 'npx penstock';
  if (npmCommand === 'run-script' || npmCommand === 'run') return 'npm run -s penstock --';
  return 'penstock';
}

/** Options of `penstock dev`. */
export interface DevOptions {
  port?: number;
  host?: string;
  /** Path of a file with a seed. */
  seed?: string;
  json?: boolean;
}

/** Programs that commands run. No file of this folder may import them, because they build on this folder. */
export interface Programs {
  /** The program of `npm start`. */
  start(): Promise<void>;
  dev(options: DevOptions): Promise<void>;
}

/** What every command of the admin tool is described with. */
interface Description {
  sentence: string;
  /** Behind `penstock `, as one would type it. */
  example: string;
}

/** Adds a noun: a command that only holds verbs. */
export function addNoun(parent: Command, name: string, description: Description): Command {
  return described(parent.command(name), description);
}

/** Adds a verb, with the option `--json` that all of them have. */
export function addVerb(parent: Command, name: string, description: Description): Command {
  return described(parent.command(name), description).option(
    '--json',
    'print one JSON document, for scripts',
  );
}

/** Adds its sentence and its example to a command's help. */
export function described(command: Command, { sentence, example }: Description): Command {
  return command.description(sentence).addHelpText('after', `\nExample:\n  $ ${PENSTOCK} ${example}`);
}

/** What the person at the command line has to know and can change; its one line is all that is printed. */
export class Refusal extends Error {
  override name = 'Refusal';
}

/** For `catch`: what is unique and there already is refused with these words; anything else goes on. */
export function refuseTaken(words: string): (error: unknown) => never {
  return (error) => {
    throw ['P2002', '23505'].includes(codeOf(error) ?? '') ? new Refusal(words) : error;
  };
}

/** The largest value of a Postgres integer. */
const MAX_INTEGER = 2_147_483_647;

/** Characters that a name may have: it has to fit a line of a table. */
const MAX_NAME = 255;

export function parseName(text: string): string {
  const name = text.trim();
  if (name === '' || name.length > MAX_NAME) {
    throw new InvalidArgumentError(`A name must have 1 to ${MAX_NAME} characters.`);
  }
  return name;
}

/** As the edge takes it: every character of it counts. */
export function parseExternalId(text: string): string {
  if (text === '' || Buffer.byteLength(text) > MAX_EXTERNAL_ID_BYTES) {
    throw new InvalidArgumentError(`An external id must have 1 to ${MAX_EXTERNAL_ID_BYTES} bytes.`);
  }
  return text;
}

/** One line for whoever finds the thing later. */
export function parseReason(text: string): string {
  const reason = text.trim();
  if (reason === '' || reason.length > MAX_NAME) {
    throw new InvalidArgumentError(`A reason must have 1 to ${MAX_NAME} characters.`);
  }
  return reason;
}

export function parseCount(text: string): number {
  const count = Number(text);
  if (text.trim() === '' || !Number.isInteger(count) || count < 1 || count > MAX_INTEGER) {
    throw new InvalidArgumentError(`Must be a whole number from 1 to ${MAX_INTEGER}.`);
  }
  return count;
}

export function parseId(text: string): string {
  if (!validate(text)) throw new InvalidArgumentError('An id must be a UUID.');
  return text.toLowerCase();
}

export function parseIds(text: string, before: string[] = []): string[] {
  return [...before, parseId(text)];
}

/** A day in UTC, as usage is counted. */
export function parseDay(text: string): Date {
  const day = DateTime.fromFormat(text, 'yyyy-MM-dd', { zone: 'utc' });
  if (!day.isValid) throw new InvalidArgumentError('A day must be written as YYYY-MM-DD.');
  return day.toJSDate();
}

/** Names from the list of permissions, or `all` for each of them. */
export function parsePermissions(text: string): Permission[] {
  const names = listOf(text);
  if (names.includes('all')) return [...permissions];
  const unknown = names.filter((name) => !permissions.some((permission) => permission === name));
  if (unknown.length > 0 || names.length === 0) {
    const wrong = unknown.length > 0 ? `Unknown permission: ${unknown.join(', ')}. ` : '';
    throw new InvalidArgumentError(`${wrong}The permissions are: all, ${permissions.join(', ')}.`);
  }
  return permissions.filter((permission) => names.includes(permission));
}

/** Names from the list of what a dashboard account may do in a workspace. */
export function parseWorkspacePermissions(text: string): string[] {
  const names = listOf(text);
  const unknown = names.filter((name) => !workspacePermissions.includes(name));
  if (unknown.length > 0 || names.length === 0) {
    const wrong = unknown.length > 0 ? `Unknown workspace permission: ${unknown.join(', ')}. ` : '';
    throw new InvalidArgumentError(`${wrong}The permissions are: ${workspacePermissions.join(', ')}.`);
  }
  return names;
}

/** What a header holds as it is. */
export function parseOrigin(text: string): string {
  if (!/^[!-~]{1,255}$/.test(text)) {
    throw new InvalidArgumentError(
      'An origin must have 1 to 255 visible ASCII characters, for example https://idp.example.',
    );
  }
  return text;
}

/** Of a page, without a slash at the end. */
export function parseBaseUrl(text: string): string {
  if (!URL.canParse(text) || !/^https?:$/.test(new URL(text).protocol)) {
    throw new InvalidArgumentError('Must be a URL that starts with http:// or https://.');
  }
  return text.replace(/\/+$/, '');
}

/** IP addresses and CIDR subnets, each as Node's own block list understands it. */
export function parseIpAllowlist(text: string): string[] {
  const entries = listOf(text);
  const wrong = entries.filter((entry) => !isAddressOrSubnet(entry));
  if (wrong.length > 0 || entries.length === 0) {
    const named = wrong.length > 0 ? `Invalid: ${wrong.join(', ')}. ` : '';
    throw new InvalidArgumentError(
      `${named}An entry must be an IP address or a subnet, for example 10.0.0.0/8.`,
    );
  }
  return entries;
}

function listOf(text: string): string[] {
  const entries = text.split(',').map((entry) => entry.trim());
  return [...new Set(entries.filter((entry) => entry !== ''))];
}
