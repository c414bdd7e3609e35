import { describeFailure } from '../platform/format.ts';
import { rest } from '../platform/poll.ts';
import type { Json } from '../profile/json.ts';
import type { Retention } from '../retention/files.ts';
import { type AuditEntry, recordAudit } from '../store/audit.ts';
import type { Connection } from '../store/database.ts';
import { commandOnly, flag, readCount, text, withDefault } from './fields.ts';
import { InvalidValue, Refusal } from './refusal.ts';
import { type Context, creation, type NamedResource, type Outcome } from './resource.ts';

/**
 * Milliseconds for which the console waits for the end of an action. A longer action continues in the background of the
 * process, and the audit shows its result.
 */
const CONSOLE_WAIT_MS = 2000;

/** Notice after an action that may continue in the background. */
const STARTED = 'Started. The audit shows the start and the result, also of a failure.';

/** Default number of days for which a restored month stays. */
const HELD_DAYS = 30;

/** Waits for the end of an action; in the console, at most CONSOLE_WAIT_MS. */
async function endOf<T>({ actor }: Context, ended: Promise<T>): Promise<T | undefined> {
  if (actor.via !== 'console') return ended;
  return Promise.race([ended, rest(CONSOLE_WAIT_MS).then(() => undefined)]);
}

/**
 * Performs an action and records its result, or the reason of its failure, in the audit. In the console, the start is
 * recorded as well, because the process may end before the action.
 * @param record records the result, unless `work` has done so
 * @throws {Refusal} with the reason
 */
async function recorded<T extends Record<string, Json>>(
  { database: { pool }, actor }: Context,
  entry: AuditEntry,
  work: (record: (tx: Pick<Connection, 'query'>, result: T) => Promise<void>) => Promise<T>,
): Promise<T> {
  let isRecorded = false;
  const record = (tx: Pick<Connection, 'query'>, detail: Record<string, Json>) =>
    recordAudit(tx, actor, [{ ...entry, detail: { ...entry.detail, ...detail } }]);
  const isConsole = actor.via === 'console';
  if (isConsole) await record(pool, { started: true });
  let result: T;
  try {
    result = await work(async (tx, ended) => {
      await record(tx, ended);
      isRecorded = true;
    });
  } catch (error) {
    if (error instanceof Refusal && !isConsole) throw error;
    const failure = error instanceof Error ? describeFailure(error) : String(error);
    await record(pool, { failure });
    throw error instanceof Refusal ? error : new Refusal(failure, undefined, 503);
  }
  // Outside of the try, because an action whose result could not be recorded has not failed.
  if (!isRecorded) await record(pool, result);
  return result;
}

/** Prints a failed month of a command immediately, in addition to the summary of the run. */
function printFailure(fields: { err: unknown; month?: string; kind?: string; workspace_id?: string }): void {
  const { err, month, kind, workspace_id } = fields;
  process.stderr.write(`${month} ${kind} of workspace ${workspace_id}: ${describeFailure(err)}\n`);
}

/** Opens the archive and a pool for the retention, runs `work`, and closes them. */
export async function withRetention<T>(
  { config, databaseUrl, actor }: Pick<Context, 'config' | 'databaseUrl' | 'actor'>,
  work: (retention: Retention) => Promise<T>,
): Promise<T> {
  // Loaded only by the actions, because each command of workspaces loads this file.
  const [{ openArchive }, { openRetentionPool }] = await Promise.all([
    import('../retention/files.ts'),
    import('../store/retention.ts'),
  ]);
  const store = await openArchive(config);
  const pool = openRetentionPool(databaseUrl());
  const log = { info() {}, error: actor.via === 'command_line' ? printFailure : () => {} };
  try {
    return await work({ pool, store, months: config.RETENTION_MONTHS, log });
  } finally {
    store?.close();
    await pool.end();
  }
}

/** @throws {Refusal} if another process holds the retention lock */
function requireLock<T>(done: T | undefined): T {
  if (done !== undefined) return done;
  throw new Refusal(
    'another process is running the retention; try again later, and see penstock retention show',
    undefined,
    409,
  );
}

/** Returns the result of an action on months, which fails if months failed. */
function outcomeOf<Result extends { failed: number }>(
  { actor }: Context,
  done: (Result & Record<string, Json>) | undefined,
): Outcome<never> {
  const failed = done?.failed ?? 0;
  const failure = `${failed} months failed, the others succeeded; see penstock retention show`;
  if (failed > 0 && actor.via === 'console') throw new Refusal(failure);
  return { row: { ...done }, ...(failed > 0 && { failure }) };
}

function readMonth(given: string): string {
  if (/^\d{4}-(0[1-9]|1[0-2])$/.test(given)) return given;
  throw new InvalidValue('Must be a month, for example 2025-03.');
}

/** A month of a workspace that the next run of the retention would archive and drop. */
export interface ListedMonth {
  id: string;
  workspace: string;
  month: string;
  kind: string;
  rows: number | string;
}

/** The due months as `penstock retention` prints them. */
export const dueMonths = {
  noun: 'retention',
  one: 'month',
  many: 'months',
  scope: 'installation',
  naming: {},
  columns: [
    { name: 'workspace', value: ({ workspace }: ListedMonth) => workspace },
    { name: 'month', value: ({ month }: ListedMonth) => month },
    { name: 'kind', value: ({ kind }: ListedMonth) => kind },
    { name: 'rows', value: ({ rows }: ListedMonth) => rows },
  ],
} satisfies NamedResource<ListedMonth> & { many: string };

async function listDue(retention: Retention): Promise<ListedMonth[]> {
  const { countDue, keyOf, MAX_COUNTED, planRetention } = await import('../retention/plan.ts');
  const rows: ListedMonth[] = [];
  for (const due of (await planRetention(retention)).due) {
    const count = await countDue(retention, due);
    const { workspace, month, kind } = due;
    rows.push({
      ...{ id: keyOf(due), workspace, month, kind },
      rows: count >= MAX_COUNTED ? `${MAX_COUNTED} or more` : count,
    });
  }
  return rows;
}

/** `penstock retention plan`. */
export const planRun = creation<ListedMonth, Record<string, never>>({
  verb: 'plan',
  button: 'Plan',
  sentence: 'List the months that the next run would archive and drop, without a change.',
  example: 'retention plan',
  scope: 'installation',
  permit: 'operator',
  fields: {},
  done: '',
  run: async (context) => ({ rows: await withRetention(context, listDue) }),
});

/** `penstock retention run`, and a form on the list of workspaces. */
export const runRetentionNow = creation({
  verb: 'run',
  button: 'Run the retention',
  sentence: 'Archive and drop the months that are older than the retention. Safe to repeat.',
  example: 'retention run --dry-run',
  lead: 'Archives and drops the months that are older than the retention of their workspace, as the daily run does. penstock retention plan lists them.',
  scope: 'installation',
  permit: 'operator',
  fields: {
    dry_run: commandOnly(flag({ label: 'Dry run', help: 'only list the months, without a change' })),
    without_archive: flag({
      label: 'Without archive',
      help: 'drop the months permanently, without an archive',
    }),
  },
  done: STARTED,
  async run(context, { values: { dry_run: isDry, without_archive: isDiscarded } }) {
    if (isDry) return { rows: await withRetention(context, listDue) };
    if (!context.config.ARCHIVE_URL && !isDiscarded)
      throw new Refusal(
        'ARCHIVE_URL is not set. Set it to a folder or to s3://bucket/prefix, or use --without-archive to drop the months permanently',
        'without_archive',
      );
    const entry = { action: 'retention.run', subject: { kind: 'archive', id: 'all' } } as const;
    const ended = recorded(context, { ...entry, detail: { archive: !isDiscarded } }, () =>
      withRetention(context, async (retention) => {
        const [{ runRetention }, { noteFinished }] = await Promise.all([
          import('../retention/run.ts'),
          import('../store/retention-runs.ts'),
        ]);
        const done = requireLock(await runRetention(retention, isDiscarded ? 'discard' : 'archive'));
        await noteFinished(retention.pool);
        return { ...done };
      }),
    );
    return outcomeOf(context, await endOf(context, ended));
  },
});

/** `penstock retention restore`, and a form on the page of a workspace. */
export const restoreArchived = creation({
  verb: 'restore',
  button: 'Restore a month',
  sentence: 'Restore a month from the archive, without deleted users. Safe to repeat.',
  example: 'retention restore --workspace default --month 2025-03',
  lead: 'Restores the events and purchases of a month from the archive, without deleted users.',
  scope: 'workspace',
  permit: 'operator',
  fields: {
    month: text({ label: 'Month', help: 'as 2025-03', value: 'month' }, readMonth, {
      placeholder: '2025-03',
    }),
    days: withDefault(
      text(
        {
          label: 'Days',
          help: 'number of days for which no run archives and drops the month again',
          value: 'days',
        },
        readCount,
      ),
      HELD_DAYS,
    ),
  },
  done: STARTED,
  async run(context, { owner: { id, name }, values: { month, days } }): Promise<Outcome<never>> {
    requireArchive(context);
    const subject = { kind: 'workspace', id };
    const entry: AuditEntry = { action: 'retention.restore', subject, workspaceId: id, detail: { month } };
    const ended = recorded(context, entry, () =>
      withRetention(context, async (retention) => {
        const { restoreMonth } = await import('../retention/restore.ts');
        const done = requireLock(await restoreMonth(retention, { workspaceId: id, month, days }));
        if (done.files === 0) throw new Refusal(`the archive has no files of ${name} of ${month}`, 'month');
        return { ...done };
      }),
    );
    return { row: { workspace: name, month, ...(await endOf(context, ended)) } };
  },
});

/** `penstock retention erase`, and a button on the page of a workspace. */
export const eraseArchived = creation({
  verb: 'erase',
  button: 'Erase deleted users from the archive',
  sentence: 'Erase deleted users from the archive now. The schedule does it 14 days after a delete.',
  example: 'retention erase --workspace default',
  scope: 'workspace',
  permit: 'operator',
  fields: {},
  done: STARTED,
  async run(context, { owner: { id, name } }): Promise<Outcome<never>> {
    requireArchive(context);
    const subject = { kind: 'workspace', id };
    const ended = recorded(context, { action: 'retention.erase', subject, workspaceId: id }, () =>
      withRetention(context, async (retention) => {
        const { eraseDeleted } = await import('../retention/restore.ts');
        return { ...requireLock(await eraseDeleted(retention, { workspaceId: id })) };
      }),
    );
    const { row, ...rest } = outcomeOf(context, await endOf(context, ended));
    return { row: { workspace: name, ...row }, ...rest };
  },
});

/** @throws {Refusal} without an archive */
function requireArchive({ config }: Context): void {
  if (!config.ARCHIVE_URL)
    throw new Refusal(
      'ARCHIVE_URL is not set. Set it to the folder or to the s3://bucket/prefix of the archive',
    );
}

/** `penstock series recount`, and a form on the list of workspaces. */
export const recountSeriesNow = creation({
  verb: 'recount',
  button: 'Recount events and purchases',
  sentence:
    'Recompute the event and purchase counters of every workspace, after an upgrade from 0.1.0 or to exclude deleted users. Lanes wait meanwhile.',
  example: 'series recount',
  lead: 'Recomputes the event and purchase counters of every workspace, after an upgrade from 0.1.0 or to exclude deleted users. Lanes wait meanwhile.',
  scope: 'installation',
  permit: 'operator',
  fields: {},
  done: STARTED,
  async run(context): Promise<Outcome<never>> {
    const [{ recountSeries }, { openPool }, { inTransaction }] = await Promise.all([
      import('../store/activity-series.ts'),
      import('../store/database.ts'),
      import('../store/transactions.ts'),
    ]);
    const subject = { kind: 'activity_series', id: 'all' };
    const ended = recorded<{ rows: number }>(
      context,
      { action: 'series.recount', subject },
      async (record) => {
        // Statements of the console's pool are canceled before a recount of large tables ends.
        const pool = openPool(context.databaseUrl(), 1);
        try {
          return await inTransaction(pool, async (tx) => {
            const rows = await recountSeries(tx);
            if (rows === undefined)
              throw new Refusal('another process is recounting; the audit shows its end', undefined, 409);
            await record(tx, { rows });
            return { rows };
          });
        } finally {
          await pool.end();
        }
      },
    );
    return { row: { ...(await endOf(context, ended)) } };
  },
});
