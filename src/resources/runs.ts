import { now } from '../platform/clock.ts';
import { START_COMMAND } from '../platform/files.ts';
import { newId } from '../platform/ids.ts';
import { until } from '../platform/poll.ts';
import { type AuditEntry, audited } from '../store/audit.ts';
import type { SelectedIntegration } from '../store/integrations.ts';
import type { ListedRowError } from '../store/sync-chunks.ts';
import { type SelectedRun, selectRuns } from '../store/sync-lists.ts';
import { cancelRun, startRun } from '../store/sync-runs.ts';
import { Refusal } from './refusal.ts';
import type { Column, Context, Tone } from './resource.ts';

const tones: Record<string, Tone> = {
  ...{ active: 'good', paused: 'warn', draft: 'calm' },
  ...{ success: 'good', running: 'warn', partial: 'warn', error: 'bad', config_error: 'bad' },
};

/** Formats the state of an integration or of a run. */
export const shownStatus = (status: string) => ({
  badge: status.replace('_', ' '),
  tone: tones[status] ?? 'calm',
});

/** Returns the duration of a run in seconds, up to now if it has not finished. */
export function secondsOf({ startedAt, finishedAt }: SelectedRun): number {
  const end = finishedAt === null ? now() : Date.parse(finishedAt);
  return Math.max(0, (end - Date.parse(startedAt)) / 1000);
}

/** Columns of a run, for the console and `penstock integrations logs`. */
export const runColumns: readonly Column<SelectedRun>[] = [
  { name: 'job_id', value: ({ id }) => id },
  {
    name: 'status',
    title: 'Result',
    value: ({ status }) => status,
    shown: ({ status }) => shownStatus(status),
  },
  { name: 'asked_by', title: 'Asked by', value: ({ askedBy }) => askedBy, not: ['page'] },
  { name: 'started_at', value: ({ startedAt }) => startedAt },
  {
    name: 'duration',
    title: 'Duration',
    kind: 'duration',
    value: secondsOf,
    not: ['json', 'table'],
  },
  { name: 'finished_at', title: 'Ended', kind: 'time', value: ({ finishedAt }) => finishedAt, not: ['list'] },
  { name: 'cancelled_at', value: ({ cancelledAt }) => cancelledAt },
  {
    name: 'last_timestamp',
    title: 'Synced through',
    kind: 'time',
    value: ({ lastTimestamp }) => lastTimestamp,
    not: ['list'],
  },
  { name: 'rows_read', title: 'Read', kind: 'number', value: ({ rowsRead }) => rowsRead },
  { name: 'rows_synced', title: 'Synced', kind: 'number', value: ({ rowsSynced }) => rowsSynced },
  { name: 'rows_failed', title: 'Failed', kind: 'number', value: ({ rowsFailed }) => rowsFailed },
  { name: 'message', title: 'Why', value: ({ message }) => message },
];

/** Columns of a row that failed or has a warning. Personal data is masked by the console. */
export const rowErrorColumns: readonly Column<ListedRowError>[] = [
  { name: 'row', title: 'Row', kind: 'number', value: ({ number }) => number },
  {
    name: 'outcome',
    title: 'Outcome',
    value: ({ synced }) => (synced ? 'synced' : 'failed'),
    shown: ({ synced }) => shownStatus(synced ? 'success' : 'error'),
  },
  { name: 'updated_at', title: 'Updated', value: ({ updatedAt }) => updatedAt },
  { name: 'identifier', title: 'Identifier', value: ({ identifier }) => identifier },
  { name: 'reason', title: 'Reason', value: ({ reason }) => reason },
  { name: 'payload', value: ({ payload }) => payload },
];

type Stores = Pick<Context, 'database' | 'actor'>;

function entryOf(
  action: 'syncs.start' | 'syncs.cancel',
  { id, workspaceId }: SelectedIntegration,
  run: string,
): AuditEntry {
  return { action, subject: { kind: 'integration', id }, workspaceId, detail: { run } };
}

/**
 * Starts a run by a row in the table of runs, which the sync processes poll. The queue is not used.
 * @throws {Refusal} if another run is in progress, or the integration is not active
 */
export async function beginRun(
  { database, actor }: Stores,
  integration: SelectedIntegration,
): Promise<SelectedRun> {
  const { id: integrationId, name, status } = integration;
  const id = newId();
  const isConsole = actor.via === 'console';
  const started = await audited(database.pool, actor, async (tx) => {
    const result = await startRun(tx, { id, integrationId, askedBy: 'operator' });
    return { result, entries: result === 'started' ? [entryOf('syncs.start', integration, id)] : [] };
  });
  if (started === 'in progress')
    throw new Refusal(
      `another job of '${name}' is in progress; ${isConsole ? 'wait until it has finished, or cancel it' : 'see penstock integrations logs'}`,
      undefined,
      409,
    );
  if (started !== 'started')
    throw new Refusal(
      `the integration '${name}' is ${status}; ${isConsole ? 'resume it first' : 'activate it with penstock integrations resume'}`,
      undefined,
      409,
    );
  return requireRun({ database }, integrationId, id);
}

/** Cancels the run in progress. @throws {Refusal} if there is none */
export async function endRun(
  { database, actor }: Stores,
  integration: SelectedIntegration,
): Promise<SelectedRun> {
  const { id: integrationId, name } = integration;
  const id = await audited(database.pool, actor, async (tx) => {
    const result = await cancelRun(tx, integrationId);
    return { result, entries: result === undefined ? [] : [entryOf('syncs.cancel', integration, result)] };
  });
  if (id === undefined) throw new Refusal(`no job of '${name}' is in progress`, undefined, 409);
  return requireRun({ database }, integrationId, id);
}

/** @throws {Refusal} if the integration has no such run */
export async function requireRun(
  { database }: Pick<Context, 'database'>,
  integrationId: string,
  id: string,
): Promise<SelectedRun> {
  const [run] = await selectRuns(database.pool, integrationId, { id, limit: 1 });
  if (run === undefined) throw new Refusal(`no job of the integration has the id ${id}`);
  return run;
}

/** Milliseconds between two polls of a run. */
const POLL_MS = 250;

/** Milliseconds without a row after which a command that waits prints that the sync process may not be running. */
const IDLE_MS = 5000;

/** Polls a run until it has ended, and returns it. */
export async function finishedRun(
  context: Pick<Context, 'database'>,
  integrationId: string,
  id: string,
): Promise<SelectedRun> {
  const begun = performance.now();
  let isReported = false;
  return until(() => requireRun(context, integrationId, id), {
    every: POLL_MS,
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
