import { nextRun, patternOf, ScheduleError } from '../integrations/schedule.ts';
import { type IntegrationKind, kinds, type SourceDefinition } from '../integrations/source.ts';
import { nowDate } from '../platform/clock.ts';
import { normalizeEmail } from '../profile/addresses.ts';
import { isUuid } from '../profile/values.ts';
import { type AuditEntry, auditedByPrisma } from '../store/audit.ts';
import { deleteIfIdle, type SelectedIntegration, selectIntegrations } from '../store/integrations.ts';
import { byNameOrId } from '../store/name-or-id.ts';
import { change } from './change.ts';
import { choice, commandOnly, flag, name, optional, secret, text, withDefault } from './fields.ts';
import { readCredentials, readDefinition, sourceFields, whereIs } from './integration-source.ts';
import { InvalidValue, Refusal } from './refusal.ts';
import {
  action,
  type Context,
  creation,
  describeResource,
  listOfOwners,
  type Outcome,
  rowOf,
} from './resource.ts';
import { beginRun, endRun, finishedRun, runColumns, shownStatus } from './runs.ts';
import { warnWithoutKey } from './source.ts';

function readSchedule(given: string): string {
  try {
    patternOf(given);
  } catch (error) {
    throw error instanceof ScheduleError ? new InvalidValue(error.message) : error;
  }
  return given.trim();
}

/** Reads addresses separated by commas. An empty text removes all addresses. */
function readContacts(given: string): string {
  const addresses = given.split(',').map((address) => address.trim());
  if (addresses.length === 1 && addresses[0] === '') return '';
  const wrong = addresses.filter((address) => normalizeEmail(address) === undefined);
  if (wrong.length > 0) throw new InvalidValue(`'${wrong[0]}' is not an email address.`);
  return addresses.join(',');
}

/** The schedule in the form that changes an integration. An empty text removes the schedule. */
const changedSchedule = text(
  { label: 'Schedule', help: 'schedule in UTC, as for create; empty: on demand', value: 'schedule' },
  (given) => (given === '' ? '' : readSchedule(given)),
  { placeholder: 'every 15 minutes' },
);

const schedule = optional(
  text(
    {
      label: 'Schedule',
      help: "schedule in UTC: 'every 15 minutes' (the shortest), 'every hour', 'daily', 'weekly', 'monthly' or a cron expression with five fields (default: on demand)",
      value: 'schedule',
    },
    readSchedule,
    { placeholder: 'every 15 minutes' },
  ),
);

const contacts = text(
  { label: 'Contacts', help: 'email addresses of the contacts, separated by commas', value: 'list' },
  readContacts,
  { maxLength: 2000 },
);

const sourceOf = ({ source }: SelectedIntegration) => source as unknown as SourceDefinition;

/** Maximum number of integrations of one name that are read, to list their workspaces in an error. */
const MAX_SAME_NAME = 10;

/** @throws {Refusal} if integrations of several workspaces match */
async function findNamed(
  { database: { pool, prisma } }: Context,
  nameOrId: string,
  workspace: string | undefined,
): Promise<SelectedIntegration | undefined> {
  const owner =
    workspace === undefined
      ? undefined
      : await prisma.workspace.findFirst({
          where: byNameOrId(workspace),
          select: { id: true },
        });
  if (owner === null)
    throw new Refusal(`no workspace has the name or the id '${workspace}'; see penstock workspaces list`);
  const wanted = { workspaceId: owner?.id, limit: MAX_SAME_NAME };
  const named = await selectIntegrations(pool, { ...wanted, name: nameOrId });
  const [first, ...others] =
    named.length === 0 && isUuid(nameOrId)
      ? await selectIntegrations(pool, { ...wanted, id: nameOrId })
      : named;
  if (others.length > 0) {
    const workspaces = named.map((one) => one.workspace).join(', ');
    throw new Refusal(
      `several workspaces have an integration '${nameOrId}'; name one with --workspace: ${workspaces}`,
    );
  }
  return first;
}

async function findById({ database }: Context, id: string): Promise<SelectedIntegration | undefined> {
  return (await selectIntegrations(database.pool, { id, limit: 1 }))[0];
}

interface Change {
  action: 'integrations.pause' | 'integrations.resume' | 'integrations.update';
  data: {
    status?: string;
    schedule?: string | null;
    contactEmails?: string;
    credentials?: Uint8Array<ArrayBuffer>;
  };
  note?: string;
}

/** Stores a change with its audit entry. */
async function store(
  context: Context,
  { id, name: called, workspaceId }: SelectedIntegration,
  { action: audit, data, note }: Change,
): Promise<Outcome<SelectedIntegration>> {
  await change(context, async (tx) => {
    const result = await tx.integration.update({ where: { id }, data: { ...data, updatedAt: nowDate() } });
    // Only the names of the members: values can contain a secret or an address.
    const detail = { name: called, changed: Object.keys(data) };
    const entry: AuditEntry = { action: audit, subject: { kind: 'integration', id }, workspaceId, detail };
    return { result, entries: [entry] };
  });
  return { one: (await findById(context, id))!, note };
}

const example = (words: string) => `integrations ${words} users`;

export const integrations = describeResource<SelectedIntegration>({
  noun: 'integrations',
  path: 'syncs',
  one: 'integration',
  many: 'integrations',
  title: 'Syncs',
  sentence:
    'Define integrations, which sync rows of a warehouse into profiles, and run and watch their syncs.',
  example: 'integrations list --workspace default',
  lead: 'Warehouse integrations, whose rows are synced into profiles by a schedule or on demand.',
  scope: 'workspace',
  permit: 'syncs',
  nameTitle: 'Integration',
  columns: [
    { name: 'integration_id', title: 'Id', kind: 'id', value: ({ id }) => id, not: ['list'] },
    { name: 'workspace', title: 'Workspace', value: ({ workspace }) => workspace },
    { name: 'name', value: (one) => one.name },
    { name: 'kind', title: 'Writes', value: ({ kind }) => kind },
    {
      name: 'source',
      title: 'Source',
      kind: 'id',
      value: (one) => whereIs(sourceOf(one)),
      not: ['one', 'list'],
    },
    {
      name: 'status',
      title: 'Status',
      value: ({ status }) => status,
      shown: ({ status }) => shownStatus(status),
    },
    { name: 'warehouse_type', value: ({ warehouseType }) => warehouseType, not: ['rows', 'table'] },
    { name: 'source', value: ({ source }) => source, not: ['rows', 'table'] },
    {
      name: 'schedule',
      title: 'Schedule',
      value: (one) => one.schedule,
      shown: (one) => ({ text: one.schedule ?? 'on demand' }),
      not: ['list'],
    },
    {
      name: 'next_scheduled_run',
      title: 'Next run',
      kind: 'time',
      value: (one) =>
        one.status === 'active' && one.schedule !== null
          ? nextRun(one.schedule, nowDate()).toISOString()
          : null,
      shown: (one) =>
        one.status !== 'active'
          ? { text: `not while it is ${one.status}` }
          : one.schedule === null
            ? { text: 'on demand' }
            : { at: nextRun(one.schedule, nowDate()) },
      not: ['rows', 'table'],
    },
    {
      name: 'contact_emails',
      title: 'Contacts',
      value: ({ contactEmails }) => contactEmails,
      not: ['rows', 'table', 'list'],
    },
    {
      name: 'update_existing_only',
      title: 'Unknown users',
      value: ({ updateExistingOnly }) => updateExistingOnly,
      shown: ({ updateExistingOnly }) => ({ text: updateExistingOnly ? 'ignored' : 'created' }),
      not: ['rows', 'table', 'list'],
    },
    {
      name: 'last_job_started_at',
      title: 'Last run',
      kind: 'time',
      value: ({ lastJobStartedAt }) => lastJobStartedAt,
      not: ['rows', 'table', 'page'],
    },
    {
      name: 'last_timestamp',
      title: 'Synced through',
      kind: 'time',
      value: ({ lastTimestamp }) => lastTimestamp,
    },
    {
      name: 'last_job_status',
      title: 'Result',
      value: ({ lastJobStatus }) => lastJobStatus,
      shown: ({ lastJobStatus }) => (lastJobStatus === null ? {} : shownStatus(lastJobStatus)),
      not: ['page'],
    },
    {
      name: 'created_at',
      title: 'Created',
      kind: 'time',
      value: ({ createdAt }) => createdAt,
      not: ['rows', 'table', 'list'],
    },
  ],
  listing: {
    sentence: 'List the integrations, oldest first.',
    example: 'integrations list --workspace default --json',
  },
  // The table is small: a workspace has a few tens of rows.
  list: ({ database: { pool } }, page) => listOfOwners(page, (part) => selectIntegrations(pool, part)),
  find: findById,
  nameOf: (one) => one.name,
  ownerOf: ({ workspaceId }) => workspaceId,
  refreshSeconds: ({ lastJobStatus }) => (lastJobStatus === 'running' ? 3 : undefined),
  naming: {
    argument: '<integration>',
    help: 'name or id of the integration',
    options: {
      workspace: optional(
        text(
          {
            label: 'Workspace',
            help: 'workspace, if several have an integration with this name',
            value: 'workspace',
          },
          (given) => given,
        ),
      ),
    },
    by: () => 'the name or the id',
    find: (context, { text: nameOrId = '', options }) =>
      findNamed(context, nameOrId, options.workspace as string | undefined),
  },
  showing: { sentence: 'Show an integration without its credentials.', example: example('show') },
  empty: 'An integration syncs the rows of a table, a folder or a bucket into profiles.',
  creation: creation({
    verb: 'create',
    button: 'Create integration',
    sentence: 'Define an integration. Its source is tested first.',
    example:
      'integrations create --workspace default --name users --kind attributes --source folder --path ./exports --format csv --schedule "every 15 minutes"',
    permit: 'syncs',
    lead: 'Fill in the fields of one source: Postgres, a folder (only BOARD_USER), or S3. This console tests it before it is stored.',
    warning: ({ config }) => warnWithoutKey(config, 'an integration of a folder'),
    done: 'Created. If its test failed, it is a draft: “Resume” tests it again and names the cause.',
    fields: {
      name: name('name, unique among the integrations of the workspace'),
      kind: choice<IntegrationKind>(
        { label: 'Writes', help: 'type of the rows; cannot be changed later', value: 'kind' },
        kinds,
      ),
      ...sourceFields,
      warehouse_type: optional(
        text(
          {
            label: 'Warehouse type',
            help: 'warehouse type that the API reports, for example redshift (default: the source)',
            value: 'type',
          },
          (given) => given,
        ),
      ),
      schedule,
      contact_emails: withDefault(contacts, ''),
      update_existing_only: flag({
        label: 'Ignore unknown users',
        help: 'ignore rows of users that do not exist',
      }),
      draft: flag({
        label: 'Draft',
        help: 'if the test fails, store the integration as a draft',
      }),
    },
    async run(context, { owner, values }) {
      const source = readDefinition(values, context.actor);
      const credentials = await readCredentials(values, context.actor);
      const { createIntegration } = await import('./integration-store.ts');
      const { id, failure } = await createIntegration(
        {
          ...{ workspaceId: owner.id, name: values.name, kind: values.kind, source, credentials },
          ...{ warehouseType: values.warehouse_type, schedule: values.schedule, draft: values.draft },
          ...{ contactEmails: values.contact_emails, updateExistingOnly: values.update_existing_only },
        },
        context,
      );
      return {
        one: (await findById(context, id))!,
        note: failure
          ? `Stored as a draft: ${failure}. To test again and activate it, run penstock integrations resume.`
          : `Connection and columns are valid. To start a sync now, run penstock integrations sync ${id}.`,
      };
    },
  }),
  actions: [
    action({
      verb: 'test',
      button: 'Test source',
      sentence: 'Test from this machine whether the source of an integration can be read.',
      example: example('test'),
      permit: 'syncs',
      fields: {},
      done: 'The source can be read from the console, and has the needed columns.',
      async run(context, { one }) {
        const { tryStored } = await import('./integration-store.ts');
        const columns = await tryStored(one, context);
        return {
          one,
          row: { integration_id: one.id, name: one.name, columns: columns.map((column) => column.name) },
        };
      },
    }),
    action({
      verb: 'update',
      button: 'Change',
      submit: 'Save changes',
      sentence: 'Change the schedule, the contacts or the secret of an integration.',
      example: `${example('update')} --schedule daily`,
      permit: 'syncs',
      lead: 'To change the source, create another integration. A new secret is tested first.',
      fields: {
        schedule: optional({ ...changedSchedule, mayBeEmpty: true }),
        on_demand: flag({ label: 'On demand', help: 'remove the schedule' }),
        contact_emails: optional({ ...contacts, mayBeEmpty: true }),
        secret: secret({ label: 'New password or secret access key', help: 'password or secret access key' }),
      },
      filled: (one: SelectedIntegration) => ({
        schedule: one.schedule ?? '',
        contact_emails: one.contactEmails,
      }),
      done: 'Changed.',
      async run(context, { one, values }) {
        const { schedule: given, on_demand, contact_emails, secret: source } = values;
        if (given && on_demand && given !== one.schedule)
          throw new Refusal('set one of --schedule and --on-demand', 'schedule');
        if (given === undefined && !on_demand && contact_emails === undefined && !source.isGiven)
          throw new Refusal(
            'nothing to change: set --schedule, --on-demand, --contact-emails, --secret-env or --secret-file',
          );
        const wanted = on_demand || given === '' ? null : given;
        const renewed = source.isGiven
          ? await (await import('./integration-store.ts')).renewCredentials(
              ...([one, await source.read('Secret'), context] as const),
            )
          : undefined;
        const data = {
          ...(wanted !== undefined && wanted !== one.schedule && { schedule: wanted }),
          ...(contact_emails !== undefined &&
            contact_emails !== one.contactEmails && { contactEmails: contact_emails }),
          ...(renewed && { credentials: new Uint8Array(renewed) }),
        };
        if (Object.keys(data).length === 0) return { one };
        return store(context, one, { action: 'integrations.update', data });
      },
    }),
    action({
      verb: 'pause',
      button: 'Pause',
      sentence: 'Pause an integration. It is not synced until you resume it.',
      example: example('pause'),
      permit: 'syncs',
      fields: {},
      isOffered: ({ status }: SelectedIntegration) => status === 'active',
      done: 'Paused. A run that is in progress continues.',
      async run(context, { one }) {
        if (one.status === 'draft')
          throw new Refusal(
            `the integration '${one.name}' is a draft, which has no schedule to pause`,
            undefined,
            409,
          );
        return store(context, one, {
          action: 'integrations.pause',
          data: { status: 'paused' },
          note: 'A running job continues; to cancel it, run penstock integrations cancel.',
        });
      },
    }),
    action({
      verb: 'resume',
      button: 'Resume',
      sentence: 'Activate a paused integration, or a draft whose source can now be read.',
      example: example('resume'),
      permit: 'syncs',
      fields: {},
      isOffered: ({ status }: SelectedIntegration) => status !== 'active',
      done: 'Resumed.',
      async run(context, { one }) {
        if (one.status === 'draft') await (await import('./integration-store.ts')).tryStored(one, context);
        return store(context, one, { action: 'integrations.resume', data: { status: 'active' } });
      },
    }),
    action({
      verb: 'delete',
      button: 'Delete integration',
      sentence: 'Delete an integration and its logs. Synced data stays.',
      example: example('delete'),
      permit: 'syncs',
      fields: {},
      lead: 'Deletes the integration and its logs. Synced data stays.',
      isDanger: true,
      confirm: (one: SelectedIntegration) => one.name,
      done: 'Deleted. Synced data stays.',
      async run({ database, actor }, { one }) {
        const { id, name: called, workspaceId } = one;
        const isDeleted = await auditedByPrisma(database.prisma, actor, async (tx) => {
          const result = await deleteIfIdle(tx, id);
          const entry = { subject: { kind: 'integration', id }, workspaceId, detail: { name: called } };
          return { result, entries: result ? [{ action: 'integrations.delete' as const, ...entry }] : [] };
        });
        if (!isDeleted)
          throw new Refusal(
            `a job of '${called}' is in progress; cancel it with penstock integrations cancel`,
            undefined,
            409,
          );
        return { row: { integration_id: id, deleted: true } };
      },
    }),
    action({
      verb: 'sync',
      button: 'Sync now',
      sentence: 'Start a sync of an integration now.',
      example: `${example('sync')} --wait`,
      permit: 'syncs',
      fields: { wait: commandOnly(flag({ label: 'Wait', help: 'wait until the sync has finished' })) },
      isOffered: ({ status, lastJobStatus }: SelectedIntegration) =>
        status === 'active' && lastJobStatus !== 'running',
      done: 'A run has started.',
      async run(context, { one, values: { wait } }) {
        const begun = await beginRun(context, one);
        const run = wait ? await finishedRun(context, one.id, begun.id) : begun;
        const where = `see penstock integrations logs ${one.id} --job ${run.id}`;
        const outcome = {
          one,
          row: rowOf({ columns: runColumns }, run),
          note: wait
            ? undefined
            : `The sync has started. To see its progress, run penstock integrations logs ${one.id}.`,
        };
        const { status, message, rowsFailed } = run;
        if (status === 'error' || status === 'config_error') {
          const which = status === 'error' && rowsFailed > 0 ? `; ${where}` : '';
          return { ...outcome, failure: `the sync failed: ${message}${which}` };
        }
        // Only with --wait: without it, the run has just started.
        return status === 'partial' ? { ...outcome, failure: `${message}; ${where}` } : outcome;
      },
    }),
    action({
      verb: 'cancel',
      button: 'Cancel run',
      sentence: 'Cancel the running sync of an integration.',
      example: example('cancel'),
      permit: 'syncs',
      fields: {},
      isDanger: true,
      isOffered: ({ lastJobStatus }: SelectedIntegration) => lastJobStatus === 'running',
      done: 'The run ends when its current rows have taken effect. Synced data stays.',
      async run(context, { one }) {
        const run = await endRun(context, one);
        return {
          one,
          row: rowOf({ columns: runColumns }, run),
          note: 'The job ends when the current rows have taken effect. Synced data stays.',
        };
      },
    }),
  ],
});
