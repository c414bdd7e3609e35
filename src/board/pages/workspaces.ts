import { DateTime } from 'luxon';
import { grouped } from '../../platform/format.ts';
import { type Html, html, type Part } from '../../platform/html.ts';
import { isUuid } from '../../profile/values.ts';
import { limits } from '../../resources/limits.ts';
import type { Workspace } from '../access.ts';
import { dailyChart } from '../chart.ts';
import { type Page, PageError, type PageServices, type Visit } from '../console.ts';
import { empty, pathWith, table, uuid } from '../layout.ts';
import { resourceTable } from '../resource-pages.ts';

/** Number of days of usage that the page shows. */
const DAYS = 30;

/** Workspaces per page. */
const PAGE = 100;

const list: Page<PageServices> = {
  method: 'get',
  path: '/workspaces',
  right: 'usage',
  async handle({ services, viewer, workspaces, findWorkspace, query }) {
    if (query('q') !== '') {
      const found = await findWorkspace(query('q'));
      if (!found) throw new PageError(404, 'Workspace not found, or your account has no permission in it.');
      return { to: `/workspaces/${found.id}` };
    }
    // Sorted by id in the database, which is the order of creation.
    const behind = await services.database.prisma.workspace.findMany({
      select: { id: true, name: true },
      where: {
        AND: [
          !viewer.full ? { id: { in: workspaces.map(({ id }) => id) } } : {},
          viewer.companyId !== undefined ? { companyId: viewer.companyId } : {},
          isUuid(query('after')) ? { id: { gt: query('after') } } : {},
        ],
      },
      orderBy: { id: 'asc' },
      take: PAGE + 1,
    });
    const shown = behind.slice(0, PAGE);
    const body = html`<h1>Workspaces</h1>
<p class="lead">Limits and usage of each workspace, oldest first.</p>
<form class="row" method="get" action="/workspaces" role="search"><label class="grow">Complete name or id <input type="search" name="q" maxlength="255" autocomplete="off"></label><button class="main">Search</button></form>
${
  shown.length === 0
    ? empty('No more workspaces', html`<a href="/workspaces">First page</a>`)
    : table(
        'Workspaces',
        ['Workspace', 'Id'],
        shown.map(({ id, name }) => [html`<a href="/workspaces/${id}">${name}</a>`, uuid(id)]),
      )
}
${behind.length > PAGE && html`<p class="pager"><a rel="next" href="${pathWith('/workspaces', { after: shown.at(-1)!.id })}">More</a></p>`}`;
    return { title: 'Workspaces', body };
  },
};

const show: Page<PageServices> = {
  method: 'get',
  path: '/workspaces/:id',
  right: 'usage',
  async handle(visit) {
    const { findWorkspace, params } = visit;
    const workspace = isUuid(params.id ?? '') ? await findWorkspace(params.id!) : undefined;
    if (!workspace) throw new PageError(404, 'Workspace not found, or your account has no permission in it.');
    return { title: workspace.name, body: await workspacePage(visit, workspace) };
  },
};

async function workspacePage(visit: Visit<PageServices>, workspace: Workspace): Promise<Html> {
  const { services, viewer } = visit;
  const [usage, limitTable] = await Promise.all([
    readUsage(services, workspace),
    resourceTable(limits, visit, workspace),
  ]);
  return html`<h1>${workspace.name}</h1>
<p class="lead">Workspace ${uuid(workspace.id)}${viewer.can('keys', workspace.id) && html` · <a href="${pathWith('/keys', { workspace: workspace.id })}">API keys</a>`}</p>
<h2>Usage</h2>${usageOf(usage)}
<h2>Limits</h2>
<p class="lead">${limits.lead}</p>
${limitTable}`;
}

interface Used {
  day: string;
  kinds: Record<(typeof kinds)[number], number>;
  total: number;
}

const kinds = ['attributes', 'events', 'purchases', 'identity', 'subscriptions'] as const;

/** Reads applied objects by day, latest first. Uses the primary key, with one row per day and lane. */
async function readUsage({ database: { prisma } }: PageServices, { id }: Workspace): Promise<Used[]> {
  const from = DateTime.utc()
    .startOf('day')
    .minus({ days: DAYS - 1 });
  const found = await prisma.usage.groupBy({
    by: ['day'],
    where: { workspaceId: id, day: { gte: from.toJSDate() } },
    _sum: { attributes: true, events: true, purchases: true, identity: true, subscriptions: true },
    orderBy: { day: 'desc' },
    take: DAYS + 1,
  });
  return found.map(({ day, _sum }) => {
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
      html`Send some users to <code>POST /users/track</code>; they are counted as they are applied.`,
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

export const workspacePages = [list, show];
