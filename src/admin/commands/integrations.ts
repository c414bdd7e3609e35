import type { Command } from 'commander';
import { takePage } from '../../platform/paging.ts';
import { isUuid } from '../../profile/values.ts';
import { integrations } from '../../resources/integrations.ts';
import { type Context, rowOf } from '../../resources/resource.ts';
import { requireRun, rowErrorColumns, runColumns } from '../../resources/runs.ts';
import { selectRowErrors } from '../../store/sync-chunks.ts';
import { selectRuns } from '../../store/sync-lists.ts';
import { parseCount, parseId, Refusal } from '../command.ts';
import { printPage } from '../output.ts';
import { addNamed, addResource, run } from '../resource-commands.ts';

/** Adds the noun of the description, and the verb `logs`, which lists the runs of an integration. */
export function addIntegrations(program: Command): void {
  const noun = addResource(program, integrations);
  addNamed(noun, integrations, {
    verb: 'logs',
    sentence: 'List the sync jobs of an integration, newest first, or the failed rows of one job.',
    example: 'integrations logs users --limit 10',
  })
    .option('--job <id>', 'show the failed rows of this job, with their reasons', parseId)
    .option('--limit <number>', 'maximum number of jobs or rows to show', parseCount, 50)
    .option('--after <id>', 'start after this job, or with --job after this row (paging)')
    .action(
      run(integrations, async (context, one, options) => {
        await logs(context, (await one(context)).id, options as unknown as LogsOptions);
      }),
    );
}

interface LogsOptions {
  job?: string;
  limit: number;
  after?: string;
  json?: boolean;
}

/** Lists runs; with `--job`, lists the rows of one run that failed or were synced with a warning. */
async function logs(
  { database }: Pick<Context, 'database'>,
  id: string,
  options: LogsOptions,
): Promise<void> {
  const { job, limit, after, json } = options;
  if (job !== undefined) {
    await requireRun({ database }, id, job);
    return rowErrors({ database }, job, options);
  }
  if (after !== undefined && !isUuid(after)) throw new Refusal('--after must be the id of a job');
  const runs = await selectRuns(database.pool, id, { after, limit: limit + 1 });
  const { rows: shown, next } = takePage(runs, limit, (last) => last.id);
  printPage(json, 'sync jobs', { rows: shown.map((run) => rowOf({ columns: runColumns }, run)), next });
}

async function rowErrors(
  { database }: Pick<Context, 'database'>,
  jobId: string,
  { limit, after, json }: LogsOptions,
): Promise<void> {
  if (after !== undefined && !/^\d{1,15}$/.test(after))
    throw new Refusal('with --job, --after must be the number of a row');
  const start = after === undefined ? -1 : Number(after);
  const errors = await selectRowErrors(database.pool, jobId, { after: start, limit: limit + 1 });
  const { rows: shown, next } = takePage(errors, limit, (last) => String(last.number));
  printPage(json, 'row errors', { rows: shown.map((row) => rowOf({ columns: rowErrorColumns }, row)), next });
}
