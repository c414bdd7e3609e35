import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Command, CommanderError } from 'commander';
import { packageRoot } from '../platform/files.ts';
import { describeFailure } from '../platform/format.ts';
import { PENSTOCK } from './command.ts';

type Add = (program: Command) => void;

/** Writes down every other noun. */
const NAMES_ALL = 'completion';

/**
 * The nouns, in the order of the help. A command that names one loads the file of that one alone, which may hold some that
 * belong together: that is half of what all would take.
 */
const nouns: Record<string, () => Promise<Add>> = {
  companies: async () => (await import('./commands/companies.ts')).addCompanies,
  workspaces: async () => (await import('./commands/companies.ts')).addWorkspaces,
  keys: async () => (await import('./commands/keys.ts')).addKeys,
  groups: async () => (await import('./commands/subscriptions.ts')).addGroups,
  users: async () => (await import('./commands/users.ts')).addUsers,
  'phone-numbers': async () => (await import('./commands/subscriptions.ts')).addPhoneNumbers,
  'preference-centers': async () => (await import('./commands/subscriptions.ts')).addPreferenceCenters,
  accounts: async () => (await import('./commands/accounts.ts')).addAccounts,
  teams: async () => (await import('./commands/companies.ts')).addTeams,
  'permission-sets': async () => (await import('./commands/companies.ts')).addPermissionSets,
  'scim-tokens': async () => (await import('./commands/accounts.ts')).addScimTokens,
  integrations: async () => (await import('./commands/integrations.ts')).addIntegrations,
  import: async () => (await import('./commands/import.ts')).addImport,
  export: async () => (await import('./commands/export.ts')).addExport,
  compare: async () => (await import('./commands/compare.ts')).addCompare,
  limits: async () => (await import('./commands/limits.ts')).addLimits,
  usage: async () => (await import('./commands/limits.ts')).addUsage,
  segments: async () => (await import('./commands/segments.ts')).addSegments,
  streams: async () => (await import('./commands/streams.ts')).addStreams,
  series: async () => (await import('./commands/maintenance.ts')).addSeries,
  retention: async () => (await import('./commands/retention.ts')).addRetention,
  audit: async () => (await import('./commands/audit.ts')).addAudit,
  'dead-letters': async () => (await import('./commands/dead-letters.ts')).addDeadLetters,
  queue: async () => (await import('./commands/queue.ts')).addQueue,
  migrate: async () => (await import('./commands/maintenance.ts')).addMigrate,
  status: async () => (await import('./commands/status.ts')).addStatus,
  workers: async () => (await import('./commands/status.ts')).addWorkers,
  doctor: async () => (await import('./commands/doctor.ts')).addDoctor,
  completion: async () => (await import('./commands/completion.ts')).addCompletion,
};

/**
 * The `penstock` command with its nouns, of which each is added by a file of admin/commands.
 *
 * @param fail is given what Commander has to say about words that it does not understand
 * @param word the first one typed: if it is a noun, no other is added
 */
export async function createProgram(fail: (text: string) => void, word = ''): Promise<Command> {
  const { version } = JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8'));
  const command = new Command('penstock')
    .description(
      'Administer a Penstock: that of DATABASE_URL, else the embedded one that runs on DATA_DIR (default .penstock).',
    )
    .version(version)
    .addHelpText('after', `\nExample:\n  $ ${PENSTOCK} keys create --workspace default --permissions all`)
    .configureOutput({ outputError: fail })
    .showSuggestionAfterError(true)
    .exitOverride();
  for (const add of await Promise.all(nounsFor(word).map((load) => load()))) add(command);
  return command;
}

function nounsFor(word: string): (() => Promise<Add>)[] {
  if (['--version', '-V'].includes(word)) return [];
  const named = Object.hasOwn(nouns, word) && word !== NAMES_ALL;
  return named ? [nouns[word]!] : Object.values(nouns);
}

/**
 * Runs one command to its end. What goes wrong stands in one line on stderr, whatever it was.
 *
 * @param words what the command line holds behind `penstock`
 * @returns the exit code
 */
export async function runProgram(words: string[]): Promise<number> {
  let code = 0;
  const fail = (text: string) => {
    code = 1;
    const line = text.trim().replaceAll('\n', ' ');
    process.stderr.write(`${line.startsWith('error:') ? line : `error: ${line}`}\n`);
  };
  try {
    const program = await createProgram(fail, words[0]);
    await program.parseAsync(words, { from: 'user' });
  } catch (error) {
    // Commander has said what is wrong, or shown the help, before it throws.
    if (error instanceof CommanderError) code = error.exitCode;
    else fail(describeFailure(error));
  }
  return code;
}
