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
      'Define integrations, which sync rows of a warehouse into profiles, and run and watch their syncs.',
    example: 'integrations list --workspace default',
  });
  const making = addVerb(noun, 'create', {
    sentence: 'Define an integration. Its source is tested first.',
    example:
      'integrations create --workspace default --name users --kind attributes --source folder --path ./exports --format csv --schedule "every 15 minutes"',
  })
    .requiredOption('--workspace <workspace>', 'name or id of the workspace')
    .requiredOption('--name <name>', 'name, unique among the integrations of the workspace', parseName)
    .addOption(
      new Option('--kind <kind>', 'type of the rows; cannot be changed later')
        .choices(kinds)
        .makeOptionMandatory(),
    );
  addSourceOptions(making)
    .option(
      '--warehouse-type <type>',
      'warehouse type that the API reports, for example redshift (default: the source)',
      parseName,
    )
    .option('--schedule <schedule>', SCHEDULE, parseSchedule)
    .option('--contact-emails <list>', CONTACTS, parseContacts, '')
    .option('--update-existing-only', 'ignore rows of users that do not exist')
    .option('--draft', 'if the test fails, store the integration as a draft')
    .action(create);
  addVerb(noun, 'list', {
    sentence: 'List the integrations, oldest first.',
    example: 'integrations list --workspace default --json',
  })
    .option('--workspace <workspace>', 'only integrations of this workspace (name or id)')
    .option('--limit <number>', 'maximum number of integrations to show', parseCount, 100)
    .option('--after <id>', 'start after this integration (paging)', parseId)
    .action(list);

  /** Adds a verb that acts on one integration. */
  const about = (verb: string, sentence: string, options = '') =>
    addVerb(noun, verb, { sentence, example: `integrations ${verb} users${options}` })
      .argument('<integration>', 'name or id of the integration')
      .option('--workspace <workspace>', 'workspace, if several have an integration with this name');
  about('show', 'Show an integration without its credentials.').action(show);
  about('test', 'Test from this machine whether the source of an integration can be read.').action(test);
  addSecretOptions(
    about('update', 'Change the schedule, the contacts or the secret of an integration.', ' --schedule daily')
      .option('--schedule <schedule>', SCHEDULE, parseSchedule)
      .option('--on-demand', 'remove the schedule')
      .option('--contact-emails <list>', CONTACTS, parseContacts),
  ).action(update);
  about('pause', 'Pause an integration. It is not synced until you resume it.').action(pause);
  about('resume', 'Activate a paused integration, or a draft whose source can now be read.').action(resume);
  about('delete', 'Delete an integration and its logs. Synced data stays.').action(remove);
  about('sync', 'Start a sync of an integration now.', ' --wait')
    .option('--wait', 'wait until the sync has finished')
    .action(sync);
  about('cancel', 'Cancel the running sync of an integration.').action(cancel);
  about(
    'logs',
    'List the sync jobs of an integration, newest first, or the failed rows of one job.',
    ' --limit 10',
  )
    .option('--job <id>', 'show the failed rows of this job, with their reasons', parseId)
    .option('--limit <number>', 'maximum number of jobs or rows to show', parseCount, 50)
    .option('--after <id>', 'start after this job, or with --job after this row (paging)')
    .action(logs);
}

const SCHEDULE =
  "schedule in UTC: 'every 15 minutes' (the shortest), 'every hour', 'daily', 'weekly', 'monthly' or a cron expression with five fields (default: on demand)";
const CONTACTS = 'email addresses of the contacts, separated by commas';

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
  // An empty value removes all addresses.
  if (addresses.length === 1 && addresses[0] === '') return '';
  const wrong = addresses.filter((address) => normalizeEmail(address) === undefined);
  if (wrong.length > 0) throw new InvalidArgumentError(`'${wrong[0]}' is not an email address.`);
  return addresses.join(',');
}
