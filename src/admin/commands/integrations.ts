import { type Command, InvalidArgumentError, Option } from 'commander';
import { patternOf, ScheduleError } from '../../integrations/schedule.ts';
import { kinds } from '../../integrations/source.ts';
import { normalizeEmail } from '../../profile/addresses.ts';
import { selectIntegrations } from '../../store/integrations.ts';
import { addNoun, addVerb, parseCount, parseId, parseName } from '../command.ts';
import { findWorkspaceId, withInstallation } from '../installation.ts';
import { pause, remove, resume, test, update } from '../integrations/change.ts';
import { create } from '../integrations/create.ts';
import { cancel, findIntegration, logs, longRow, shortRow, sync } from '../integrations/runs.ts';
import { addSecretOptions, addSourceOptions } from '../integrations/source-options.ts';
import { pageOf, printPage, printRow } from '../output.ts';

export function addIntegrations(program: Command): void {
  const noun = addNoun(program, 'integrations', {
    sentence:
      'Define warehouse integrations, whose rows are synced into profiles, and run and follow their syncs.',
    example: 'integrations list --workspace default',
  });
  const making = addVerb(noun, 'create', {
    sentence: 'Define an integration, when a test of its source succeeds.',
    example:
      'integrations create --workspace default --name users --kind attributes --source folder --path ./exports --format csv --schedule "every 15 minutes"',
  })
    .requiredOption('--workspace <workspace>', 'name or id of its workspace')
    .requiredOption('--name <name>', 'name, unlike that of any other integration of the workspace', parseName)
    .addOption(
      new Option('--kind <kind>', 'what its rows are; it cannot be changed')
        .choices(kinds)
        .makeOptionMandatory(),
    );
  addSourceOptions(making)
    .option(
      '--warehouse-type <type>',
      'what clients are told that it is, such as redshift (default: the source)',
      parseName,
    )
    .option('--schedule <schedule>', SCHEDULE, parseSchedule)
    .option('--contact-emails <list>', CONTACTS, parseContacts, '')
    .option('--update-existing-only', 'rows of users that there are not change nothing')
    .option('--draft', 'if the test fails, keep it as a draft')
    .action(create);
  addVerb(noun, 'list', {
    sentence: 'List the integrations, the oldest first.',
    example: 'integrations list --workspace default --json',
  })
    .option('--workspace <workspace>', 'only integrations of this workspace (name or id)')
    .option('--limit <number>', 'most integrations to show', parseCount, 100)
    .option('--after <id>', 'go on behind this integration', parseId)
    .action(list);

  /** A verb about one integration. */
  const about = (verb: string, sentence: string, options = '') =>
    addVerb(noun, verb, { sentence, example: `integrations ${verb} users${options}` })
      .argument('<integration>', 'its name or id')
      .option('--workspace <workspace>', 'its workspace, where several have an integration of this name');
  about('show', 'Show an integration with everything but its credentials.').action(show);
  about(
    'test',
    'Test whether the source of an integration can be read, from where this command runs.',
  ).action(test);
  addSecretOptions(
    about('update', 'Change the schedule, the contacts or the secret of an integration.', ' --schedule daily')
      .option('--schedule <schedule>', SCHEDULE, parseSchedule)
      .option('--on-demand', 'no schedule any more')
      .option('--contact-emails <list>', CONTACTS, parseContacts),
  ).action(update);
  about('pause', 'Pause an integration: it is not synced until it is resumed.').action(pause);
  about(
    'resume',
    'Activate an integration that is paused, or a draft whose source can be read by now.',
  ).action(resume);
  about('delete', 'Delete an integration with its logs; what it synced stays.').action(remove);
  about('sync', 'Start a sync of an integration now.', ' --wait')
    .option('--wait', 'wait until it has ended')
    .action(sync);
  about('cancel', 'End the sync of an integration that is in progress.').action(cancel);
  about(
    'logs',
    'List the sync jobs of an integration, the newest first, or the rows of one that failed.',
    ' --limit 10',
  )
    .option('--job <id>', 'the rows of this job that failed, with the reason', parseId)
    .option('--limit <number>', 'most jobs or rows to show', parseCount, 50)
    .option('--after <id>', 'go on behind this job, or with --job behind this row')
    .action(logs);
}

const SCHEDULE =
  "when it is synced, in UTC: 'every 15 minutes' at the most, 'every hour', 'daily', 'weekly', 'monthly' or a cron expression of five fields (default: on demand)";
const CONTACTS = 'email addresses of those who look after it, with commas between them';

interface ListOptions {
  workspace?: string;
  limit: number;
  after?: string;
  json?: boolean;
}

async function list({ workspace, limit, after, json }: ListOptions): Promise<void> {
  await withInstallation(async ({ database }) => {
    const workspaceId = await findWorkspaceId(database, workspace);
    const found = await selectIntegrations(database.pool, { workspaceId, after, limit: limit + 1 });
    const { shown, next } = pageOf(found, limit, (last) => last.id);
    printPage(json, 'integrations', { rows: shown.map(shortRow), next });
  });
}

async function show(
  nameOrId: string,
  { workspace, json }: { workspace?: string; json?: boolean },
): Promise<void> {
  await withInstallation(async ({ database }) => {
    printRow(json, longRow(await findIntegration(database, nameOrId, workspace), new Date()));
  });
}

function parseSchedule(text: string): string {
  try {
    patternOf(text);
  } catch (error) {
    if (error instanceof ScheduleError) throw new InvalidArgumentError(error.message);
    throw error;
  }
  return text.trim();
}

function parseContacts(text: string): string {
  const addresses = text.split(',').map((address) => address.trim());
  // Takes back those that there were.
  if (addresses.length === 1 && addresses[0] === '') return '';
  const wrong = addresses.filter((address) => normalizeEmail(address) === undefined);
  if (wrong.length > 0) throw new InvalidArgumentError(`'${wrong[0]}' is no email address.`);
  return addresses.join(',');
}
