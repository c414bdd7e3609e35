import type { Command } from 'commander';
import { PENSTOCK } from './command-name.ts';

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

function described(command: Command, { sentence, example }: Description): Command {
  return command.description(sentence).addHelpText('after', `\nExample:\n  $ ${PENSTOCK} ${example}`);
}
