import { v7, validate } from 'uuid';
import { nextRun } from '../../integrations/schedule.ts';
import type { SourceDefinition } from '../../integrations/source.ts';
import { START_COMMAND } from '../../platform/files.ts';
import { until } from '../../platform/poll.ts';
import { type AuditEntry, audited } from '../../store/audit.ts';
import type { Database } from '../../store/database.ts';
import { type SelectedIntegration, selectIntegrations } from '../../store/integrations.ts';
import { selectRowErrors } from '../../store/sync-chunks.ts';
import { type SelectedRun, selectRuns } from '../../store/sync-lists.ts';
import { cancelRun, startRun } from '../../store/sync-runs.ts';
import { PENSTOCK, Refusal } from '../command.ts';
import { commandLine, findWorkspaceId, type Installation, withInstallation } from '../installation.ts';
import { pageOf, printPage, printRow, type Row } from '../output.ts';

/** Maximum number of integrations of one name that are read, to list their workspaces in an error. */
const MAX_SAME_NAME = 10;

/**
 * Finds an integration by its name or its id.
 *
 * @param workspace name or id of its workspace, required if several workspaces have an integration of this name
 * @throws {Refusal} if no integration matches, or several do
 */
export async function findIntegration(
  database: Database,
  nameOrId: string,
  workspace?: string,
): Promise<SelectedIntegration> {
  const workspaceId = await findWorkspaceId(database, workspace);
  const wanted = { workspaceId, limit: MAX_SAME_NAME };
  const named = await selectIntegrations(database.pool, { ...wanted, name: nameOrId });
  const [found, ...others] =
    named.length === 0 && validate(nameOrId)
      ? await selectIntegrations(database.pool, { ...wanted, id: nameOrId })
      : named;
  if (found === undefined)
    throw new Refusal(
      `no integration has the name or the id '${nameOrId}'; see ${PENSTOCK} integrations list`,
    );
  if (others.length > 0) {
    const workspaces = named.map((one) => one.workspace).join(', ');
    throw new Refusal(
      `several workspaces have an integration '${nameOrId}'; name one with --workspace: ${workspaces}`,
    );
  }
  return found;
}

/** Converts an integration to a row of a list. */
export function shortRow(integration: SelectedIntegration): Row {
  return {
    integration_id: integration.id,
    workspace: integration.workspace,
    name: integration.name,
    kind: integration.kind,
    source: whereIs(sourceOf(integration)),
    status: integration.status,
    schedule: integration.schedule,
    last_timestamp: integration.lastTimestamp,
    last_job_status: integration.lastJobStatus,
  };
}

/** Converts an integration to its full row, without the credentials. */
export function longRow(integration: SelectedIntegration, now: Date): Row {
  const { status, schedule } = integration;
  return {
    integration_id: integration.id,
    workspace: integration.workspace,
    name: integration.name,
    kind: integration.kind,
    status,
    warehouse_type: integration.warehouseType,
    source: integration.source,
    schedule,
    next_scheduled_run:
      status === 'active' && schedule !== null ? nextRun(schedule, now).toISOString() : null,
    contact_emails: integration.contactEmails,
    update_existing_only: integration.updateExistingOnly,
    last_timestamp: integration.lastTimestamp,
    last_job_started_at: integration.lastJobStartedAt,
    last_job_status: integration.lastJobStatus,
    created_at: integration.createdAt,
  };
}

function runRow(run: SelectedRun): Row {
  return {
    job_id: run.id,
    status: run.status,
    asked_by: run.askedBy,
    started_at: run.startedAt,
    finished_at: run.finishedAt,
    cancelled_at: run.cancelledAt,
    last_timestamp: run.lastTimestamp,
    rows_read: run.rowsRead,
    rows_synced: run.rowsSynced,
    rows_failed: run.rowsFailed,
    message: run.message,
  };
}

export function sourceOf({ source }: Pick<SelectedIntegration, 'source'>): SourceDefinition {
  return source as unknown as SourceDefinition;
}

/** Formats the location of a source for operators. */
function whereIs(source: SourceDefinition): string {
  if (source.type === 'postgres') return `${source.host}:${source.port}/${source.database} ${source.table}`;
  if (source.type === 'folder') return `${source.path} (${source.format})`;
  return `s3://${source.bucket}/${source.prefix} (${source.format})`;
}

/** Milliseconds between two polls of a run. */
const LOOK_MS = 250;

/** Milliseconds without a row after which `--wait` prints that the sync process may not be running. */
const IDLE_MS = 5000;

interface OneOptions {
  workspace?: string;
  json?: boolean;
}

/** Starts a run by a row in the table of runs, which the sync processes poll. The command does not use the queue. */
export async function sync(nameOrId: string, options: OneOptions & { wait?: boolean }): Promise<void> {
  await withInstallation(async (installation) => {
    const { database } = installation;
    const integration = await findIntegration(database, nameOrId, options.workspace);
    const { id: integrationId, name, status } = integration;
    const id = v7();
    const started = await audited(database.pool, commandLine(), async (tx) => {
      const result = await startRun(tx, { id, integrationId, askedBy: 'operator' });
      return { result, entries: result === 'started' ? [entryOf('syncs.start', integration, id)] : [] };
    });
    if (started === 'in progress')
      throw new Refusal(`another job of '${name}' is in progress; see ${PENSTOCK} integrations logs`);
    if (started !== 'started')
      throw new Refusal(
        `the integration '${name}' is ${status}; activate it with ${PENSTOCK} integrations resume`,
      );
    const run = await (options.wait ? ended : requireRun)(installation, integrationId, id);
    printRow(
      options.json,
      runRow(run),
      options.wait
        ? undefined
        : `The sync has started. To see its progress, run ${PENSTOCK} integrations logs ${integrationId}.`,
    );
    const where = `see ${PENSTOCK} integrations logs ${integrationId} --job ${run.id}`;
    if (run.status === 'error' || run.status === 'config_error') {
      const which = run.status === 'error' && run.rowsFailed > 0 ? `; ${where}` : '';
      throw new Refusal(`the sync failed: ${run.message}${which}`);
    }
    // Only with --wait: without it, the run has just started.
    if (run.status === 'partial') throw new Refusal(`${run.message}; ${where}`);
  });
}

/** Polls a run until it has ended, and returns it. */
async function ended(installation: Installation, integrationId: string, id: string): Promise<SelectedRun> {
  const begun = performance.now();
  let isReported = false;
  return until(() => requireRun(installation, integrationId, id), {
    every: LOOK_MS,
    isSo: ({ finishedAt }) => finishedAt !== null,
    inVain({ rowsRead }) {
      if (isReported || rowsRead > 0 || performance.now() - begun < IDLE_MS) return;
      isReported = true;
      // On stderr, so that stdout contains only the result.
      process.stderr.write(
        `No row has been synced yet. If no sync process is running, start one (${START_COMMAND}, or sync in the Procfile). The job continues if you stop this command.\n`,
      );
    },
  });
}

async function requireRun(
  { database }: Installation,
  integrationId: string,
  id: string,
): Promise<SelectedRun> {
  const [run] = await selectRuns(database.pool, integrationId, { id, limit: 1 });
  if (run === undefined) throw new Refusal(`no job of the integration has the id ${id}`);
  return run;
}

export async function cancel(nameOrId: string, options: OneOptions): Promise<void> {
  await withInstallation(async (installation) => {
    const { database } = installation;
    const integration = await findIntegration(database, nameOrId, options.workspace);
    const { id: integrationId, name } = integration;
    const id = await audited(database.pool, commandLine(), async (tx) => {
      const result = await cancelRun(tx, integrationId);
      return { result, entries: result === undefined ? [] : [entryOf('syncs.cancel', integration, result)] };
    });
    if (id === undefined) throw new Refusal(`no job of '${name}' is in progress`);
    printRow(
      options.json,
      runRow(await requireRun(installation, integrationId, id)),
      'The job ends when the current rows have taken effect. Synced data stays.',
    );
  });
}

function entryOf(
  action: 'syncs.start' | 'syncs.cancel',
  { id, workspaceId }: SelectedIntegration,
  run: string,
): AuditEntry {
  return { action, subject: { kind: 'integration', id }, workspaceId, detail: { run } };
}

interface LogsOptions extends OneOptions {
  job?: string;
  limit: number;
  after?: string;
}

/** Lists runs; with `--job`, lists the rows of one run that failed or were synced with a warning. */
export async function logs(nameOrId: string, options: LogsOptions): Promise<void> {
  await withInstallation(async (installation) => {
    const { database } = installation;
    const { id } = await findIntegration(database, nameOrId, options.workspace);
    if (options.job !== undefined) {
      await requireRun(installation, id, options.job);
      return rowErrors(installation, options.job, options);
    }
    if (options.after !== undefined && !validate(options.after))
      throw new Refusal('--after must be the id of a job');
    const found = await selectRuns(database.pool, id, { after: options.after, limit: options.limit + 1 });
    const { shown, next } = pageOf(found, options.limit, (last) => last.id);
    printPage(options.json, 'sync jobs', { rows: shown.map(runRow), next });
  });
}

async function rowErrors({ database }: Installation, jobId: string, { limit, after, json }: LogsOptions) {
  if (after !== undefined && !/^\d{1,15}$/.test(after))
    throw new Refusal('with --job, --after must be the number of a row');
  const behind = after === undefined ? -1 : Number(after);
  const found = await selectRowErrors(database.pool, jobId, { after: behind, limit: limit + 1 });
  const { shown, next } = pageOf(found, limit, (last) => String(last.number));
  const rows = shown.map((row) => ({
    row: row.number,
    outcome: row.synced ? 'synced' : 'failed',
    updated_at: row.updatedAt,
    identifier: row.identifier,
    reason: row.reason,
    payload: row.payload,
  }));
  printPage(json, 'row errors', { rows, next });
}
