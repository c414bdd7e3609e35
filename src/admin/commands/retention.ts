import type { Command } from 'commander';
import { describeFailure } from '../../platform/format.ts';
import { setRetention } from '../../resources/workspace-actions.ts';
import { workspaces } from '../../resources/workspaces.ts';
import { openArchive, type Retention, requireStore } from '../../retention/files.ts';
import {
  countDue,
  eachWorkspace,
  firstKept,
  MAX_COUNTED,
  monthsKept,
  planRetention,
  readClocks,
} from '../../retention/plan.ts';
import { ERASE_AFTER_DAYS, eraseDeleted, restoreMonth } from '../../retention/restore.ts';
import { runRetention } from '../../retention/run.ts';
import { recordAudit } from '../../store/audit.ts';
import { openRetentionPool } from '../../store/retention.ts';
import { listFailures, noteFinished, type RetentionFailure } from '../../store/retention-runs.ts';
import { addNoun, addVerb, PENSTOCK, parseCount, Refusal } from '../command.ts';
import { commandLine, findWorkspace, type Installation, withInstallation } from '../installation.ts';
import { printPage, printRow, type Row } from '../output.ts';
import { addOwnerVerb } from '../resource-commands.ts';

const HELD_DAYS = 30;

export function addRetention(program: Command): void {
  const noun = addNoun(program, 'retention', {
    sentence: 'Keep events and purchases for a number of months, archive older months, and restore them.',
    example: 'retention show',
  });
  addVerb(noun, 'show', {
    sentence: 'Show how many months each workspace keeps, and which months are archived.',
    example: 'retention show',
  }).action(show);
  addOwnerVerb(noun, workspaces, setRetention);
  addVerb(noun, 'plan', {
    sentence: 'List the months that the next run would archive and drop, without a change.',
    example: 'retention plan',
  }).action(plan);
  addVerb(noun, 'run', {
    sentence: 'Archive and drop the months that are older than the retention. Safe to repeat.',
    example: 'retention run --dry-run',
  })
    .option('--dry-run', 'only list the months, without a change')
    .option('--without-archive', 'drop the months permanently, without an archive')
    .action(run);
  addVerb(noun, 'restore', {
    sentence: 'Restore a month from the archive, without deleted users. Safe to repeat.',
    example: 'retention restore --workspace default --month 2025-03',
  })
    .requiredOption('--workspace <workspace>', 'name or id of the workspace')
    .requiredOption('--month <month>', 'as 2025-03', parseMonth)
    .option(
      '--days <days>',
      'number of days for which no run archives and drops the month again',
      parseCount,
      HELD_DAYS,
    )
    .action(restore);
  addVerb(noun, 'erase', {
    sentence: `Erase deleted users from the archive now. The schedule does it ${ERASE_AFTER_DAYS} days after a delete.`,
    example: 'retention erase --workspace default',
  })
    .requiredOption('--workspace <workspace>', 'name or id of the workspace')
    .action(erase);
}

function parseMonth(text: string): string {
  if (/^\d{4}-(0[1-9]|1[0-2])$/.test(text)) return text;
  throw new Refusal(`--month must be a month, for example 2025-03 (it is '${text}')`);
}

async function withRetention(
  work: (retention: Retention, installation: Installation) => Promise<void>,
): Promise<void> {
  await withInstallation(async (installation) => {
    const { config, databaseUrl } = installation;
    const store = await openArchive(config);
    const pool = openRetentionPool(databaseUrl);
    const log = { info() {}, error: printFailure };
    const options = { pool, store, months: config.RETENTION_MONTHS, log };
    await work(options, installation).finally(async () => {
      store?.close();
      await pool.end();
    });
  });
}

/** Prints a failed month immediately, in addition to the summary of the run. */
function printFailure(fields: { err: unknown; month?: string; kind?: string; workspace_id?: string }): void {
  const { err, month, kind, workspace_id } = fields;
  process.stderr.write(`${month} ${kind} of workspace ${workspace_id}: ${describeFailure(err)}\n`);
}

async function show({ json }: { json?: boolean }): Promise<void> {
  await withRetention(async (retention) => {
    const rows: Row[] = [];
    const clocks = await readClocks(retention);
    const failures = new Map<string, RetentionFailure[]>();
    for await (const failure of listFailures(retention.pool))
      failures.set(failure.workspaceId, [...(failures.get(failure.workspaceId) ?? []), failure]);
    for await (const workspace of eachWorkspace(retention)) {
      const months = monthsKept(workspace, retention.months);
      rows.push({
        workspace: workspace.name,
        months: months ?? 'forever',
        set_for: workspace.own ? 'the workspace' : 'all',
        keeps_from: months === undefined ? null : firstKept(clocks, months),
        ...{ archived_months: workspace.archived, first: workspace.first, last: workspace.last },
        ...{ rows: workspace.rows, bytes: workspace.bytes, unfinished_files: workspace.unfinished },
        deletes_since: workspace.deletesSince?.toISOString() ?? null,
        failing_months: failures.get(workspace.workspaceId)?.length ?? 0,
        failure: failures.get(workspace.workspaceId)?.[0]?.reason ?? null,
      });
    }
    printPage(json, 'workspaces', { rows, next: null });
  });
}

async function plan({ json }: { json?: boolean }): Promise<void> {
  await withRetention(async (retention) => {
    const rows: Row[] = [];
    for (const due of (await planRetention(retention)).due) {
      const count = await countDue(retention, due);
      rows.push({
        ...{ workspace: due.workspace, month: due.month, kind: due.kind },
        rows: count >= MAX_COUNTED ? `${MAX_COUNTED} or more` : count,
      });
    }
    printPage(json, 'months', { rows, next: null });
  });
}

interface RunOptions {
  dryRun?: boolean;
  withoutArchive?: boolean;
  json?: boolean;
}

async function run({ dryRun, withoutArchive, json }: RunOptions): Promise<void> {
  if (dryRun) return plan({ ...(json && { json }) });
  await withRetention(async (retention) => {
    if (!retention.store && !withoutArchive)
      throw new Refusal(
        'ARCHIVE_URL is not set. Set it to a folder or to s3://bucket/prefix, or use --without-archive to drop the months permanently',
      );
    const done = alone(await runRetention(retention, withoutArchive ? 'discard' : 'archive'));
    await noteFinished(retention.pool);
    if (done.months > 0 || done.dropped > 0)
      await recordAudit(retention.pool, commandLine(), [
        {
          action: 'retention.run',
          subject: { kind: 'archive', id: 'all' },
          detail: { ...done, archive: !withoutArchive },
        },
      ]);
    printRow(json, { ...done });
    requireWhole(done);
  });
}

/** Fails after the summary is printed, so that a script sees by the exit code that months failed. */
function requireWhole({ failed }: { failed: number }): void {
  if (failed > 0)
    throw new Refusal(`${failed} months failed, the others succeeded; see ${PENSTOCK} retention show`);
}

async function restore(options: {
  workspace: string;
  month: string;
  days: number;
  json?: boolean;
}): Promise<void> {
  const { workspace, month, days, json } = options;
  await withRetention(async (retention, { database }) => {
    requireStore(retention.store);
    const { id, name } = await findWorkspace(database, workspace);
    const done = alone(await restoreMonth(retention, { workspaceId: id, month, days }));
    if (done.files === 0) throw new Refusal(`the archive has no files of ${name} of ${month}`);
    await recordAudit(retention.pool, commandLine(), [
      {
        action: 'retention.restore',
        subject: { kind: 'workspace', id },
        workspaceId: id,
        detail: { month, ...done },
      },
    ]);
    printRow(json, { workspace: name, month, ...done });
  });
}

async function erase({ workspace, json }: { workspace: string; json?: boolean }): Promise<void> {
  await withRetention(async (retention, { database }) => {
    requireStore(retention.store);
    const { id, name } = await findWorkspace(database, workspace);
    const done = alone(await eraseDeleted(retention, { workspaceId: id }));
    const entry = { action: 'retention.erase', subject: { kind: 'workspace', id } } as const;
    await recordAudit(retention.pool, commandLine(), [{ ...entry, workspaceId: id, detail: { ...done } }]);
    printRow(json, { workspace: name, ...done });
    requireWhole(done);
  });
}

function alone<T>(done: T | undefined): T {
  if (done !== undefined) return done;
  throw new Refusal(
    `another process is running the retention; try again later, and see ${PENSTOCK} retention show`,
  );
}
