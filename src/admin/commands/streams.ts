import { type Command, InvalidArgumentError } from 'commander';
import { v7 } from 'uuid';
import { integrationKeys } from '../../embedded/address.ts';
import { type Credentials, encryptCredentials, NoIntegrationKey } from '../../integrations/source.ts';
import type { Json } from '../../profile/json.ts';
import { eraseDeletedFromLog } from '../../retention/erase-log.ts';
import { type AuditAction, audited, recordAudit } from '../../store/audit.ts';
import type { Connection } from '../../store/database.ts';
import {
  createDestination,
  type DestinationRow,
  listDestinations,
  MAX_DESTINATIONS,
  readDestinationSecret,
  removeDestination,
  replayFrom,
  setDestinationState,
} from '../../store/stream-destinations.ts';
import { DeliveryError } from '../../streams/destination.ts';
import { openDestination, openingBy, placeOf } from '../../streams/open-destination.ts';
import { addNoun, addVerb, parseName, Refusal, refuseTaken } from '../command.ts';
import { commandLine, findWorkspace, type Installation, withInstallation } from '../installation.ts';
import { printPage, printRow, type Row } from '../output.ts';
import { addTargetOptions, readTarget, type TargetOptions } from './stream-targets.ts';

interface OneOptions {
  workspace: string;
  json?: boolean;
}

export function addStreams(program: Command): void {
  const noun = addNoun(program, 'streams', {
    sentence: 'Send the changes of a workspace to destinations, and show the progress of each stream.',
    example: 'streams list --workspace default',
  });
  const creating = addVerb(noun, 'create', {
    sentence:
      'Create a stream to a webhook (its secret is shown once), a Kafka topic, or files in a folder or bucket.',
    example: 'streams create --workspace default --name crm --url https://crm.example.com/penstock',
  })
    .requiredOption('--workspace <workspace>', 'name or id of the workspace')
    .requiredOption('--name <name>', 'name, unique among the streams of the workspace', parseName);
  addTargetOptions(creating)
    .option(
      '--from <time>',
      'start with the changes from this time on, as far as the log has them; beginning: the whole log (default: now)',
      parseBeginning,
    )
    .action(create);
  addVerb(noun, 'list', {
    sentence: 'List the streams of a workspace, oldest first.',
    example: 'streams list --workspace default --json',
  })
    .requiredOption('--workspace <workspace>', 'name or id of the workspace')
    .action(list);
  const about = (verb: string, sentence: string, option = '') =>
    addVerb(noun, verb, { sentence, example: `streams ${verb} crm --workspace default${option}` })
      .argument('<stream>', 'its name or id')
      .requiredOption('--workspace <workspace>', 'name or id of the workspace');
  about('show', 'Show a stream, its progress and its last error.').action(show);
  about('test', 'Send an empty batch to the destination now.').action(test);
  about('pause', 'Pause the delivery. No change is lost while the log has it (STREAM_LOG_DAYS).').action(
    setTo('paused'),
  );
  about('resume', 'Resume the delivery, or retry immediately.').action(setTo('active'));
  about('replay-from', 'Deliver the changes from a time on again.', ' --at 2026-11-23T08:00:00Z')
    .requiredOption(
      '--at <time>',
      'time in ISO 8601 with offset; a time before the log delivers the whole log',
      parseTime,
    )
    .action(replay);
  addVerb(noun, 'erase', {
    sentence: 'Erase deleted users from the log of streams now. A worker does this within an hour.',
    example: 'streams erase --workspace default',
  })
    .requiredOption('--workspace <workspace>', 'name or id of the workspace')
    .action(erase);
  about('remove', 'Remove a stream. Undelivered changes are not delivered.').action(remove);
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/;

function parseTime(text: string): Date {
  const at = new Date(text);
  if (!TIME.test(text) || Number.isNaN(at.getTime()))
    throw new InvalidArgumentError('Must be a time, for example 2026-11-23T08:00:00Z.');
  return at;
}

const parseBeginning = (text: string) => (text === 'beginning' ? new Date(0) : parseTime(text));

interface CreateOptions extends OneOptions, TargetOptions {
  name: string;
  from?: Date;
}

async function create({ workspace, name, json, from, ...options }: CreateOptions): Promise<void> {
  await withInstallation(async ({ database, config }) => {
    const { id: workspaceId } = await findWorkspace(database, workspace);
    const { kind, settings, credentials, newSecret, gatherMs = 0 } = await readTarget(options, config);
    const id = v7();
    const secret = credentials ? encrypt(credentials, id, config) : null;
    const made = { workspaceId, id, name, kind, settings, secret, gatherMs, from };
    const begun = from && { from: from.toISOString() };
    await audited(database.pool, commandLine(), async (tx) => {
      if (!(await createDestination(tx, made)))
        throw new Refusal(`a workspace can have at most ${MAX_DESTINATIONS} streams; remove one first`);
      return { result: undefined, entries: [entryOf('streams.create', made, { name, kind, ...begun })] };
    }).catch(refuseTaken(`this workspace already has a stream with the name '${name}'`));
    const row = rowOf(await find({ workspace, json: true }, id, database));
    printRow(
      json,
      newSecret ? { ...row, secret: newSecret } : row,
      newSecret && 'Save the secret now: it is not shown again.',
    );
  });
}

function encrypt(credentials: Credentials, id: string, config: Installation['config']): Buffer {
  try {
    return encryptCredentials(credentials, id, integrationKeys(config));
  } catch (error) {
    if (error instanceof NoIntegrationKey) throw new Refusal(error.message);
    throw error;
  }
}

function entryOf(
  action: AuditAction,
  { id, workspaceId }: { id: string; workspaceId: string },
  detail: Record<string, Json> = {},
) {
  return { action, subject: { kind: 'stream', id }, workspaceId, detail };
}

async function find(
  { workspace }: OneOptions,
  nameOrId: string,
  database: Installation['database'],
): Promise<DestinationRow> {
  const { id: workspaceId } = await findWorkspace(database, workspace);
  const all = await listDestinations(database.pool, { workspaceId, limit: MAX_DESTINATIONS });
  const found = all.find(({ name }) => name === nameOrId) ?? all.find(({ id }) => id === nameOrId);
  if (!found) throw new Refusal(`the workspace has no stream '${nameOrId}'`);
  return found;
}

async function erase({ workspace, json }: OneOptions): Promise<void> {
  await withInstallation(async ({ database }) => {
    const { id, name } = await findWorkspace(database, workspace);
    await eraseDeletedFromLog(database.pool, id);
    const entry = { action: 'streams.erase', subject: { kind: 'workspace', id } } as const;
    await recordAudit(database.pool, commandLine(), [{ ...entry, workspaceId: id, detail: {} }]);
    printRow(json, { workspace: name, state: 'erased' });
  });
}

async function list({ workspace, json }: OneOptions): Promise<void> {
  await withInstallation(async ({ database }) => {
    const { id: workspaceId } = await findWorkspace(database, workspace);
    const found = await listDestinations(database.pool, { workspaceId, limit: MAX_DESTINATIONS });
    printPage(json, 'streams', { rows: found.map(rowOf), next: null });
  });
}

async function show(nameOrId: string, options: OneOptions): Promise<void> {
  await withInstallation(async ({ database }) =>
    printRow(options.json, rowOf(await find(options, nameOrId, database))),
  );
}

async function test(nameOrId: string, options: OneOptions): Promise<void> {
  await withInstallation(async ({ database, config }) => {
    const found = await find(options, nameOrId, database);
    const secret = await readDestinationSecret(database.pool, found);
    try {
      const destination = openDestination({ ...found, secret }, openingBy(config, integrationKeys(config)));
      const { signal } = new AbortController();
      try {
        if ('deliver' in destination)
          await destination.deliver({ id: `test_${v7()}`, messages: [], envelopes: [] }, signal);
        else await destination.check(signal);
      } finally {
        await destination.close();
      }
    } catch (error) {
      if (error instanceof DeliveryError) throw new Refusal(`the test failed: ${error.message}`);
      throw error;
    }
    printRow(options.json, { stream_id: found.id, name: found.name, reached: true });
  });
}

/** Changes a stream, with its entry in the audit, and shows it. */
async function changeOne(
  nameOrId: string,
  options: OneOptions,
  {
    action,
    work,
  }: {
    action: AuditAction;
    work(tx: Connection, found: DestinationRow): Promise<{ changed: boolean; detail?: Record<string, Json> }>;
  },
): Promise<void> {
  await withInstallation(async ({ database }) => {
    const found = await find(options, nameOrId, database);
    const detail = await audited(database.pool, commandLine(), async (tx) => {
      const done = await work(tx, found);
      return {
        result: done.detail,
        entries: done.changed ? [entryOf(action, found, { name: found.name, ...done.detail })] : [],
      };
    });
    const row =
      action === 'streams.remove'
        ? { stream_id: found.id, name: found.name, removed: true }
        : rowOf(await find(options, found.id, database));
    printRow(options.json, { ...row, ...detail });
  });
}

const setTo = (state: 'active' | 'paused') => (nameOrId: string, options: OneOptions) =>
  changeOne(nameOrId, options, {
    action: state === 'active' ? 'streams.resume' : 'streams.pause',
    work: async (tx, found) => ({ changed: await setDestinationState(tx, found, state) }),
  });

function replay(nameOrId: string, options: OneOptions & { at: Date }): Promise<void> {
  return changeOne(nameOrId, options, {
    action: 'streams.replay',
    async work(tx, found) {
      await replayFrom(tx, found, options.at);
      return { changed: true, detail: { from: options.at.toISOString() } };
    },
  });
}

function remove(nameOrId: string, options: OneOptions): Promise<void> {
  return changeOne(nameOrId, options, {
    action: 'streams.remove',
    async work(tx, found) {
      await removeDestination(tx, found);
      return { changed: true };
    },
  });
}

function rowOf(found: DestinationRow): Row {
  return {
    stream_id: found.id,
    workspace: found.workspace,
    name: found.name,
    kind: found.kind,
    url: typeof found.settings.url === 'string' ? found.settings.url : placeOf(found),
    state: found.state,
    lag_seconds: Math.round(found.lag),
    delivered: found.delivered,
    delivered_at: found.deliveredAt?.toISOString() ?? null,
    failures: found.failures,
    last_error: found.lastError,
    next_try_at: found.nextTryAt?.toISOString() ?? null,
    lost_rows: found.lost,
    lost_at: found.lostAt?.toISOString() ?? null,
    created_at: found.createdAt.toISOString(),
  };
}
