import { DateTime } from 'luxon';
import { grouped } from '../../platform/format.ts';
import { html, type Part } from '../../platform/html.ts';
import { limits } from '../../resources/limits.ts';
import type { ShownWorkspace } from '../../resources/workspaces.ts';
import { dailyChart } from '../chart.ts';
import type { PageServices } from '../console.ts';
import { empty, pathWith, table } from '../layout.ts';
import { type Extras, resourceTable } from '../resource-pages.ts';

/** Number of days of usage that the page shows. */
const DAYS = 30;

/** Additions to the pages of workspaces: usage and limits. */
export const workspaceExtras: Extras<ShownWorkspace> = {
  async section(visit, workspace) {
    const [usage, limitTable] = await Promise.all([
      readUsage(visit.services, workspace),
      resourceTable(limits, visit, workspace),
    ]);
    const { id } = workspace;
    return html`${visit.viewer.can('keys', id) && html`<p class="actions"><a class="button" href="${pathWith('/keys', { workspace: id })}">API keys</a></p>`}
<h2>Usage</h2>${usageOf(usage)}
<h2>Limits</h2>
<p class="lead">${limits.lead}</p>
${limitTable}`;
  },
};

interface Used {
  day: string;
  kinds: Record<(typeof kinds)[number], number>;
  total: number;
}

const kinds = ['attributes', 'events', 'purchases', 'identity', 'subscriptions'] as const;

/** Reads applied objects by day, latest first. Uses the primary key, with one row per day and lane. */
async function readUsage({ database: { prisma } }: PageServices, { id }: ShownWorkspace): Promise<Used[]> {
  const from = DateTime.utc()
    .startOf('day')
    .minus({ days: DAYS - 1 });
  const days = await prisma.usage.groupBy({
    by: ['day'],
    where: { workspaceId: id, day: { gte: from.toJSDate() } },
    _sum: { attributes: true, events: true, purchases: true, identity: true, subscriptions: true },
    orderBy: { day: 'desc' },
    take: DAYS + 1,
  });
  return days.map(({ day, _sum }) => {
    // The sums are far below 2^53.
    const sums = kinds.map((kind) => [kind, Number(_sum[kind] ?? 0)] as const);
    const total = sums.reduce((sum, [, number]) => sum + number, 0);
    return { day: day.toISOString().slice(0, 10), kinds: Object.fromEntries(sums) as Used['kinds'], total };
  });
}

function usageOf(used: Used[]): Part {
  if (used.length === 0)
    return empty(
      `Nothing was applied in the last ${DAYS} days`,
      'Objects are counted by day as they are applied.',
    );
  return html`${dailyChart(
    'Applied objects by day',
    used.map(({ day, total }) => ({ day, value: total })),
    { days: DAYS },
  )}
${table(
  'Applied objects by day and kind',
  [
    'Day',
    ...[...kinds, 'total'].map((name) => ({
      name: name[0]!.toUpperCase() + name.slice(1),
      number: true as const,
    })),
  ],
  used.map(({ day, kinds: sums, total }) => [
    day,
    ...kinds.map((kind) => grouped(sums[kind])),
    grouped(total),
  ]),
)}
<p class="faint pager">Days are in UTC. <code>penstock usage</code> prints earlier days.</p>`;
}
