import path from 'node:path';
import type { Command } from 'commander';

/** The files of the command; within another program it has its plain name. */
const OWN_FILES = ['cli.js', 'penstock'];

/**
 * How the person at the command line has called this command, so that what a hint says can be typed as it stands. By
 * npx or npm run in the project's folder, or by its name where that is on the PATH.
 */
export const PENSTOCK = OWN_FILES.includes(path.basename(process.argv[1] ?? ''))
  ? commandName(process.env.npm_command)
  : 'penstock';

function commandName(npmCommand: string | undefined): string {
  if (npmCommand === 'exec') return 'npx penstock';
  if (npmCommand === 'run-script' || npmCommand === 'run') return 'npm run -s penstock --';
  return 'penstock';
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

/** The one line that says what went wrong, without a stack. */
export function describeFailure(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // Prisma puts the call, its source and blank lines before the reason; the reason stands last.
  const lines = error.message.split('\n').map((line) => line.trim());
  return lines.findLast((line) => line !== '') ?? codeOf(error) ?? error.name;
}

/** The code that Node, Postgres or Prisma gave the error. */
export function codeOf(error: unknown): string | undefined {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return typeof code === 'string' ? code : undefined;
}

/** For `catch`: what is unique and there already is refused with these words; anything else goes on. */
export function refuseTaken(words: string): (error: unknown) => never {
  return (error) => {
    throw ['P2002', '23505'].includes(codeOf(error) ?? '') ? new Refusal(words) : error;
  };
}
