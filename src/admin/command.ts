import path from 'node:path';
import { type Command, InvalidArgumentError } from 'commander';

import { startedByNpm } from '../platform/environment.ts';

import { readCount, readDay, readExternalId, readId, readName } from '../resources/fields.ts';
import { InvalidValue, Refusal, refuseTaken } from '../resources/refusal.ts';

/** File names of the command. In any other program, hints use the plain name `penstock`. */
const OWN_FILES = ['cli.js', 'penstock', 'penstock.cjs'];

/**
 * The command line prefix for hints, so that an operator can copy them: `npx penstock`, `npm run -s penstock --`, or
 * `penstock`, depending on how the operator started this command.
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
  /** Runs the program of `npm start`. */
  start(): Promise<void>;
  dev(options: DevOptions): Promise<void>;
}

/** Help text of a command. */
interface Description {
  sentence: string;
  /** Example command line without `penstock`. */
  example: string;
}

/** Adds a noun: a command that only holds verbs. */
export function addNoun(parent: Command, name: string, description: Description): Command {
  return described(parent.command(name), description);
}

/** Adds a verb with the common option `--json`. */
export function addVerb(parent: Command, name: string, description: Description): Command {
  return described(parent.command(name), description).option(
    '--json',
    'print one JSON document, for scripts',
  );
}

/** Adds the sentence and the example to the help of a command. */
export function described(command: Command, { sentence, example }: Description): Command {
  return command.description(sentence).addHelpText('after', `\nExample:\n  $ ${PENSTOCK} ${example}`);
}

export { Refusal, refuseTaken };

/** Converts a reader of values to a Commander argument parser. */
export const parserOf =
  <T>(read: (text: string) => T) =>
  (text: string): T => {
    try {
      return read(text);
    } catch (error) {
      throw error instanceof InvalidValue ? new InvalidArgumentError(error.message) : error;
    }
  };

export const parseName = parserOf(readName);

/** Parses an external id as the API does: white space and case are significant. */
export const parseExternalId = parserOf(readExternalId);

export const parseCount = parserOf(readCount);

export const parseId = parserOf(readId);

export function parseIds(text: string, before: string[] = []): string[] {
  return [...before, parseId(text)];
}

export const parseDay = parserOf(readDay);

/** Parses an http(s) base URL and strips trailing slashes. */
export function parseBaseUrl(text: string): string {
  if (!URL.canParse(text) || !/^https?:$/.test(new URL(text).protocol)) {
    throw new InvalidArgumentError('Must be a URL that starts with http:// or https://.');
  }
  return text.replace(/\/+$/, '');
}
