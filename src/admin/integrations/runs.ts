import { setTimeout as sleep } from 'node:timers/promises';
import { v7 } from 'uuid';
import { cancelRun } from '../../store/syncs/cancel-run.ts';
import { selectRuns } from '../../store/syncs/select-runs.ts';
import { startRun } from '../../store/syncs/start-run.ts';
import { PENSTOCK } from '../command-name.ts';
import { type Installation, withInstallation } from '../installation.ts';
import { pageOf, printPage, printRow } from '../output.ts';
import { Refusal } from '../refusal.ts';
import { findIntegration } from './find-integration.ts';
import { runRow } from './rows.ts';

/** Milliseconds between two looks at a run that is waited for. */
const LOOK_MS = 250;

/** Milliseconds after which whoever waits is told why nothing may be happening. */
const IDLE_MS = 5000;

interface OneOptions {
  workspace?: string;
  json?: boolean;
}

/** Starts a run. The sync processes find it in its table: this command needs no queue. */
export async function sync(nameOrId: string, options: OneOptions & { wait?: boolean }): Promise<void> {
  await withInstallation(async (installation) => {
    const { database } = installation;
    const { id: integrationId, name, status } = await findIntegration(database, nameOrId, options.workspace);
    const id = v7();
    const outcome = await startRun(database.pool, { id, integrationId, askedBy: 'operator' });
    if (outcome === 'in progress')
      throw new Refusal(`another job of '${name}' is in progress; see ${PENSTOCK} integrations logs`);
    if (outcome !== 'started')
      throw new Refusal(
        `the integration '${name}' is ${status}; activate it with ${PENSTOCK} integrations resume`,
      );
    if (options.wait) await ended(installation, integrationId, id);
    const run = await requireRun(installation, integrationId, id);
    printRow(
      options.json,
      runRow(run),
      options.wait
        ? undefined
        : `It has begun; ${PENSTOCK} integrations logs ${integrationId} tells how it goes.`,
    );
    if (run.status === 'error' || run.status === 'config_error')
      throw new Refusal(`the sync failed: ${run.message}`);
    // Of a run that nobody has waited for nothing is known yet.
    if (run.status === 'partial')
      throw new Refusal(
        `${run.message}; ${PENSTOCK} integrations logs ${integrationId} --job ${run.id} tells which and why`,
      );
  });
}

async function ended(installation: Installation, integrationId: string, id: string): Promise<void> {
  const begun = performance.now();
  for (let told = false; ; await sleep(LOOK_MS)) {
    const { finished_at, rows_read } = await requireRun(installation, integrationId, id);
    if (finished_at !== null) return;
    if (told || rows_read > 0 || performance.now() - begun < IDLE_MS) continue;
    told = true;
    // On stderr, so that what is printed in the end stays as it is.
    process.stderr.write(
      "No row has been synced yet. Without a sync process (the Procfile's sync, or npm start) the job waits for one; it goes on when this command is ended.\n",
    );
  }
}

async function requireRun({ database }: Installation, integrationId: string, id: string) {
  const [run] = await selectRuns(database.pool, integrationId, { id, limit: 1 });
  if (run === undefined) throw new Refusal(`no job of the integration has the id ${id}`);
  return run;
}

export async function cancel(nameOrId: string, options: OneOptions): Promise<void> {
  await withInstallation(async (installation) => {
    const { database } = installation;
    const { id: integrationId, name } = await findIntegration(database, nameOrId, options.workspace);
    const id = await cancelRun(database.pool, integrationId);
    if (id === undefined) throw new Refusal(`no job of '${name}' is in progress`);
    printRow(
      options.json,
      runRow(await requireRun(installation, integrationId, id)),
      'It ends when the rows in hand have taken effect; what was synced stays.',
    );
  });
}

interface LogsOptions extends OneOptions {
  job?: string;
  limit: number;
  after?: string;
}

/** Runs, or with a job the rows of it that failed. */
export async function logs(nameOrId: string, options: LogsOptions): Promise<void> {
  await withInstallation(async (installation) => {
    const { database } = installation;
    const { id } = await findIntegration(database, nameOrId, options.workspace);
    if (options.job !== undefined) {
      await requireRun(installation, id, options.job);
      return rowErrors(installation, options.job, options);
    }
    if (options.after !== undefined && !UUID.test(options.after))
      throw new Refusal('--after is the id of a job');
    const found = await selectRuns(database.pool, id, { after: options.after, limit: options.limit + 1 });
    const { shown, next } = pageOf(found, options.limit, (last) => last.id);
    printPage(options.json, 'sync jobs', { rows: shown.map(runRow), next });
  });
}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

async function rowErrors({ database }: Installation, jobId: string, { limit, after, json }: LogsOptions) {
  if (after !== undefined && !/^\d{1,15}$/.test(after))
    throw new Refusal('with --job, --after is the number of a row');
  const found = await database.prisma.syncRowError.findMany({
    where: { jobId, ...(after !== undefined && { number: { gt: BigInt(after) } }) },
    orderBy: { number: 'asc' },
    take: limit + 1,
  });
  const { shown, next } = pageOf(found, limit, (last) => String(last.number));
  const rows = shown.map((row) => ({
    row: Number(row.number),
    updated_at: row.updatedAt,
    identifier: row.identifier,
    reason: row.reason,
    payload: row.payload,
  }));
  printPage(json, 'row errors', { rows, next });
}
