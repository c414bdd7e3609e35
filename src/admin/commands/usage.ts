import { type Command, InvalidArgumentError } from 'commander';
import { DateTime } from 'luxon';
import { takePage } from '../../platform/paging.ts';
import { addVerb, parseCount, parseDay, parseId, Refusal } from '../command.ts';
import { findWorkspaceId, namesOfWorkspaces, withInstallation } from '../installation.ts';
import { printPage, type Row } from '../output.ts';

/** Number of days shown without `--from`: about one billing period. */
const DEFAULT_DAYS = 31;

export function addUsage(program: Command): void {
  addVerb(program, 'usage', {
    sentence: 'Show the objects that took effect per workspace and day (UTC), newest day first.',
    example: 'usage --workspace default --from 2026-07-01 --to 2026-07-31',
  })
    .option('--workspace <workspace>', 'only this workspace (name or id)')
    .option('--from <day>', `first day, YYYY-MM-DD (default: ${DEFAULT_DAYS} days up to --to)`, parseDay)
    .option('--to <day>', 'last day, YYYY-MM-DD (default: today)', parseDay)
    .option('--limit <number>', 'maximum number of rows to show', parseCount, 1000)
    .option('--after <day/id>', 'start after this row (paging)', parseCursor)
    .action(usage);
}

interface UsageOptions {
  workspace?: string;
  from?: Date;
  to?: Date;
  limit: number;
  after?: Cursor;
  json?: boolean;
}

async function usage(options: UsageOptions): Promise<void> {
  const { from, to } = rangeOf(options);
  await withInstallation(async ({ database }) => {
    const workspaceId = await findWorkspaceId(database, options.workspace);
    const days = await database.prisma.usage.groupBy({
      by: ['day', 'workspaceId'],
      where: {
        day: { gte: from, lte: to },
        ...(workspaceId && { workspaceId }),
        ...(options.after && afterCursor(options.after)),
      },
      _sum: { attributes: true, events: true, purchases: true, identity: true, subscriptions: true },
      orderBy: [{ day: 'desc' }, { workspaceId: 'asc' }],
      take: options.limit + 1,
    });
    const { rows: shown, next } = takePage(
      days,
      options.limit,
      (last) => `${dayOf(last.day)}/${last.workspaceId}`,
    );
    const names = await namesOfWorkspaces(
      database,
      shown.map((row) => row.workspaceId),
    );
    const rows = shown.map((row): Row => {
      // Sums of counts that stay far below 2^53.
      const attributes = Number(row._sum.attributes ?? 0);
      const events = Number(row._sum.events ?? 0);
      const purchases = Number(row._sum.purchases ?? 0);
      const identity = Number(row._sum.identity ?? 0);
      const subscriptions = Number(row._sum.subscriptions ?? 0);
      return {
        day: dayOf(row.day),
        workspace: names.get(row.workspaceId) ?? row.workspaceId,
        attributes,
        events,
        purchases,
        identity,
        subscriptions,
        total: attributes + events + purchases + identity + subscriptions,
      };
    });
    printPage(options.json, 'usage', { rows, next });
  });
}

function rangeOf(options: UsageOptions): { from: Date; to: Date } {
  const to = options.to ?? DateTime.utc().startOf('day').toJSDate();
  const from =
    options.from ??
    DateTime.fromJSDate(to, { zone: 'utc' })
      .minus({ days: DEFAULT_DAYS - 1 })
      .toJSDate();
  if (from > to) throw new Refusal(`--from ${dayOf(from)} is later than --to ${dayOf(to)}`);
  return { from, to };
}

/** Position of a row in the list. */
interface Cursor {
  day: Date;
  workspaceId: string;
}

function parseCursor(text: string): Cursor {
  const [day = '', workspaceId = '', ...rest] = text.split('/');
  if (rest.length > 0) throw new InvalidArgumentError('Must be the value printed after the previous page.');
  return { day: parseDay(day), workspaceId: parseId(workspaceId) };
}

function afterCursor({ day, workspaceId }: Cursor) {
  return { OR: [{ day: { lt: day } }, { day, workspaceId: { gt: workspaceId } }] };
}

function dayOf(date: Date): string {
  return date.toISOString().slice(0, 10);
}
