import { readFileSync } from 'node:fs';
import { type Command, Option } from 'commander';
import { describeFailure } from '../../platform/format.ts';
import { takePage } from '../../platform/paging.ts';
import { deadLetterColumns, readReason } from '../../resources/dead-letters.ts';
import { rowOf } from '../../resources/resource.ts';
import {
  countDeadLetters,
  discardDeadLetters,
  listDeadLetters,
  pagesOfDeadLetters,
  readDeadLetter,
} from '../../store/dead-letter-actions.ts';
import { ANY_BYTES } from '../../store/dead-letters.ts';
import { addNoun, addVerb, PENSTOCK, parseCount, parseId, parseIds, parserOf, Refusal } from '../command.ts';
import {
  commandLine,
  findWorkspaceId,
  type Installation,
  namesOfWorkspaces,
  withInstallation,
} from '../installation.ts';
import { printJson, printPage, printRow } from '../output.ts';
import { showProgress } from '../progress.ts';

const states = ['waiting', 'replaying', 'replayed', 'discarded'];

/** Dead letters per batch, which is also the step of the progress bar. */
const CHUNK = 100;

export function addDeadLetters(program: Command): void {
  const noun = addNoun(program, 'dead-letters', {
    sentence:
      'List, show, replay, correct and discard dead letters: accepted objects that could not be applied.',
    example: 'dead-letters list --state waiting',
  });
  addVerb(noun, 'list', {
    sentence: 'List the dead letters, newest first.',
    example: 'dead-letters list --workspace default --state waiting --limit 20',
  })
    .option('--workspace <workspace>', 'only this workspace (name or id)')
    .addOption(new Option('--state <state>', 'only dead letters in this state').choices(states))
    .option('--limit <number>', 'maximum number of dead letters to show', parseCount, 50)
    .option('--after <id>', 'start after this dead letter (paging)', parseId)
    .action(list);
  addVerb(noun, 'show', {
    sentence:
      'Show one dead letter: the object, the reason why it could not be applied, and the request that contained it.',
    example: 'dead-letters show 019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f',
  })
    .argument('<id>', 'id of the dead letter', parseId)
    .action(show);
  addVerb(noun, 'replay', {
    sentence: 'Enqueue dead letters again. Each takes effect at most once, however often you replay it.',
    example: 'dead-letters replay --all --workspace default',
  })
    .argument('[ids...]', 'ids of the dead letters', parseIds)
    .option('--all', 'all dead letters that have not taken effect yet')
    .option('--workspace <workspace>', 'with --all: only this workspace (name or id)')
    .action(replay);
  addVerb(noun, 'discard', {
    sentence: 'Discard dead letters. They are kept with your reason, and can no longer be replayed.',
    example: 'dead-letters discard 019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f --reason "a test of the shop"',
  })
    .argument('<ids...>', 'ids of the dead letters', parseIds)
    .requiredOption('--reason <reason>', 'reason, shown with the dead letter', parserOf(readReason))
    .action(discard);
  addVerb(noun, 'mend', {
    sentence: 'Replace the object of a dead letter with a corrected one and replay it. The original is kept.',
    example: 'dead-letters mend 019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f --file mended.json',
  })
    .argument('<id>', 'id of the dead letter', parseId)
    .requiredOption(
      '--file <path>',
      'file with the JSON of the corrected object, in the form of `object` in `show --json`; - reads standard input',
    )
    .action(mend);
}

interface ListOptions {
  workspace?: string;
  state?: string;
  limit: number;
  after?: string;
  json?: boolean;
}

async function list({ state, limit, after, ...options }: ListOptions): Promise<void> {
  await withInstallation(async ({ database }) => {
    const workspaceId = await findWorkspaceId(database, options.workspace);
    const which = { workspaceId, ...(state && { states: [state] }) };
    const letters = await listDeadLetters(database.pool, which, { before: after, limit: limit + 1 });
    const { rows: shown, next } = takePage(letters, limit, (last) => last.id);
    const names = await namesOfWorkspaces(
      database,
      shown.map((letter) => letter.workspaceId),
    );
    const rows = shown.map((letter) =>
      rowOf(
        { columns: deadLetterColumns },
        { ...letter, workspace: names.get(letter.workspaceId) ?? letter.workspaceId },
        options.json ? 'rows' : 'table',
      ),
    );
    printPage(options.json, 'dead letters', { rows, next });
  });
}

async function show(id: string, { json }: { json?: boolean }): Promise<void> {
  await withInstallation(async ({ database }) => {
    const letter = await readDeadLetter(database.pool, id, ANY_BYTES);
    if (letter === undefined)
      throw new Refusal(`no dead letter has the id ${id}; see ${PENSTOCK} dead-letters list`);
    const names = await namesOfWorkspaces(database, [letter.workspaceId]);
    const workspace = names.get(letter.workspaceId) ?? letter.workspaceId;
    printRow(json, rowOf({ columns: deadLetterColumns }, { ...letter, workspace }));
  });
}

interface ReplayOptions {
  all?: boolean;
  workspace?: string;
  json?: boolean;
}

async function replay(ids: string[], { all, workspace, json }: ReplayOptions): Promise<void> {
  if (ids.length > 0 === Boolean(all)) throw new Refusal('name the dead letters by their ids, or use --all');
  if (workspace !== undefined && !all) throw new Refusal('--workspace needs --all; an id needs no workspace');
  // Loaded only by the commands that use the queue, for a fast start of the others.
  const { replayInChunks } = await import('../queue.ts');
  await withInstallation(async (installation) => {
    const letters = all ? await everyLetter(installation, workspace) : namedLetters(ids);
    const progress = showProgress(letters.count, 'dead letters');
    const replayed = await replayInChunks(installation, letters.chunks, progress.advance).finally(
      progress.stop,
    );
    const { enqueued, alreadyReplayed, discarded, unknown } = replayed;
    if (json) printJson({ enqueued, already_replayed: alreadyReplayed, discarded, unknown });
    else {
      const given = discarded > 0 ? `, ${discarded} had been discarded` : '';
      process.stdout.write(`${enqueued} enqueued, ${alreadyReplayed} had already taken effect${given}\n`);
    }
    if (unknown.length > 0) throw new Refusal(`no dead letter has the id ${unknown.join(', ')}`);
  });
}

/** Returns the operator's name for a dead letter: the operating system user that runs the command. */
const operator = () => `${commandLine().name} (command line)`;

async function discard(ids: string[], { reason, json }: { reason: string; json?: boolean }): Promise<void> {
  await withInstallation(async ({ database }) => {
    const by = operator();
    const discarded: string[] = [];
    for (let start = 0; start < ids.length; start += CHUNK)
      discarded.push(
        ...(await discardDeadLetters(database.pool, ids.slice(start, start + CHUNK), {
          ...{ by, reason, actor: commandLine() },
        })),
      );
    const left = ids.filter((id) => !discarded.includes(id.toLowerCase()));
    if (json) printJson({ discarded: discarded.length, not_waiting: left });
    else process.stdout.write(`${discarded.length} discarded\n`);
    if (left.length > 0) throw new Refusal(`no waiting dead letter has the id ${left.join(', ')}`);
  });
}

async function mend(id: string, { file, json }: { file: string; json?: boolean }): Promise<void> {
  const text = readText(file);
  const { fixInQueue } = await import('../queue.ts');
  await withInstallation(async (installation) => {
    await fixInQueue(installation, id, { text, by: operator() });
    if (json) printJson({ dead_letter_id: id, mended: true });
    else process.stdout.write('replaced and enqueued\n');
  });
}

/** @throws {Refusal} if the file cannot be read */
function readText(file: string): string {
  try {
    return readFileSync(file === '-' ? 0 : file, 'utf8');
  } catch (error) {
    throw new Refusal(`${file} cannot be read: ${describeFailure(error)}`);
  }
}

interface Letters {
  count: number;
  chunks: AsyncIterable<string[]>;
}

function namedLetters(ids: string[]): Letters {
  const chunks = async function* () {
    for (let start = 0; start < ids.length; start += CHUNK) yield ids.slice(start, start + CHUNK);
  };
  return { count: ids.length, chunks: chunks() };
}

/**
 * Pages through the dead letters to replay, in the order of acceptance. A dead letter that fails again meanwhile is on
 * a page that was already read, so each is replayed once. Dead letters in state `replaying` are included, because the
 * process that replayed them may have been killed before it enqueued them.
 */
async function everyLetter({ database }: Installation, workspace?: string): Promise<Letters> {
  const workspaceId = await findWorkspaceId(database, workspace);
  const which = { workspaceId, states: ['waiting', 'replaying'] };
  return {
    count: await countDeadLetters(database.pool, which),
    chunks: pagesOfDeadLetters(database.pool, which, CHUNK),
  };
}
