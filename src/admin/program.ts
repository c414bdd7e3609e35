import { Command, CommanderError } from 'commander';
import { packageVersion } from '../platform/files.ts';
import { describeFailure } from '../platform/format.ts';
import { descriptions, entries, type HelpGroup, type Noun } from '../resources/index.ts';
import type { Resource } from '../resources/resource.ts';
import { PENSTOCK, type Programs } from './command.ts';

type Add = (program: Command, programs: Programs) => void;

/** Nouns that list all other nouns and therefore need them loaded. */
const NAMES_ALL = ['completion', 'help'];

interface Group {
  heading: string;
  nouns: Record<string, () => Promise<Add>>;
}

/** Loads the description of a resource and creates its commands. */
const described = (noun: Noun) => async (): Promise<Add> => {
  const [resource, { addResource }] = await Promise.all([
    descriptions[noun].load(),
    import('./resource-commands.ts'),
  ]);
  return (program) => void addResource(program, resource as Resource);
};

/** Returns the nouns of the described resources under a heading of the help. */
const describedUnder = (heading: HelpGroup): Group['nouns'] =>
  Object.fromEntries(
    entries.filter(([, { help }]) => help === heading).map(([noun]) => [noun, described(noun)]),
  );

/**
 * Nouns by group, in the order of the help. A command line that begins with a noun loads only the file of that noun,
 * which takes half as long as loading all files.
 */
const groups: Group[] = [
  {
    heading: 'Run:',
    nouns: {
      start: async () => (await import('./commands/start.ts')).addStart,
      dev: async () => (await import('./commands/dev.ts')).addDev,
    },
  },
  {
    heading: 'Check and operate:',
    nouns: {
      status: async () => (await import('./commands/status.ts')).addStatus,
      doctor: async () => (await import('./commands/doctor.ts')).addDoctor,
      workers: async () => (await import('./commands/status.ts')).addWorkers,
      queue: async () => (await import('./commands/queue.ts')).addQueue,
      'dead-letters': async () => (await import('./commands/dead-letters.ts')).addDeadLetters,
      ...describedUnder('Check and operate:'),
      migrate: async () => (await import('./commands/maintenance.ts')).addMigrate,
      retention: async () => (await import('./commands/retention.ts')).addRetention,
      series: async () => (await import('./commands/maintenance.ts')).addSeries,
      audit: async () => (await import('./commands/audit.ts')).addAudit,
    },
  },
  {
    heading: 'Users and data:',
    nouns: {
      users: async () => (await import('./commands/users.ts')).addUsers,
      ...describedUnder('Users and data:'),
      'phone-numbers': async () => (await import('./commands/subscriptions.ts')).addPhoneNumbers,
      'preference-centers': async () => (await import('./commands/subscriptions.ts')).addPreferenceCenters,
      segments: async () => (await import('./commands/segments.ts')).addSegments,
      import: async () => (await import('./commands/import.ts')).addImport,
      export: async () => (await import('./commands/export.ts')).addExport,
      compare: async () => (await import('./commands/compare.ts')).addCompare,
    },
  },
  {
    heading: 'Workspaces and access:',
    nouns: {
      ...describedUnder('Workspaces and access:'),
      usage: async () => (await import('./commands/usage.ts')).addUsage,
    },
  },
  {
    heading: 'Connections:',
    nouns: {
      integrations: async () => (await import('./commands/integrations.ts')).addIntegrations,
      ...describedUnder('Connections:'),
    },
  },
  {
    heading: 'Shell and help:',
    nouns: {
      completion: async () => (await import('./commands/completion.ts')).addCompletion,
      help: async () => (await import('./commands/help.ts')).addHelp,
    },
  },
];

/**
 * Creates the `penstock` command with its nouns.
 *
 * @param fail called with Commander's message if it cannot parse the command line
 * @param word first word of the command line. A noun is then added alone, except `completion` and `help`.
 * @param programs actions of the commands that run Penstock
 */
export async function createProgram(
  fail: (text: string) => void,
  word = '',
  programs: Programs = { start: async () => {}, dev: async () => {} },
): Promise<Command> {
  const command = new Command('penstock')
    .description(
      'Administer the Penstock of DATABASE_URL, or else the embedded one in DATA_DIR (default .penstock).',
    )
    .version(packageVersion)
    .addHelpText('after', `\nExample:\n  $ ${PENSTOCK} keys create --workspace default --permissions all`)
    .configureOutput({ outputError: fail })
    .showSuggestionAfterError(true)
    .exitOverride();
  const named =
    Object.hasOwn(Object.assign({}, ...groups.map(({ nouns }) => nouns)), word) && !NAMES_ALL.includes(word);
  for (const { heading, nouns } of ['--version', '-V'].includes(word) ? [] : groups) {
    command.commandsGroup(heading);
    const wanted = Object.entries(nouns).filter(([noun]) => !named || noun === word);
    for (const add of await Promise.all(wanted.map(([, load]) => load()))) add(command, programs);
  }
  return command;
}

/**
 * Runs one command. Prints each error as one line on stderr.
 *
 * @param words command line arguments after `penstock`
 * @returns the exit code
 */
export async function runProgram(words: string[], programs?: Programs): Promise<number> {
  let code = 0;
  const fail = (text: string) => {
    code = 1;
    const line = text.trim().replaceAll('\n', ' ');
    process.stderr.write(`${line.startsWith('error:') ? line : `error: ${line}`}\n`);
  };
  try {
    const program = await createProgram(fail, words[0], programs);
    await program.parseAsync(words, { from: 'user' });
  } catch (error) {
    // Before it throws a CommanderError, Commander has printed the error or the help.
    if (error instanceof CommanderError) code = error.exitCode;
    else fail(describeFailure(error));
  }
  return code;
}
