import { DateTime } from 'luxon';
import { grouped } from '../../platform/format.ts';
import { type Html, html, type Part } from '../../platform/html.ts';
import { isUuid } from '../../profile/values.ts';
import { readCount } from '../../resources/fields.ts';
import { InvalidValue } from '../../resources/refusal.ts';
import { type BucketName, buckets } from '../../schemas/limits.ts';
import { bucketsOf, rulesOf } from '../../schemas/vendor-rules.ts';
import { type RateLimitOverride, resetRateLimits, setRateLimit } from '../../store/rate-limits.ts';
import type { Workspace } from '../access.ts';
import { dailyChart } from '../chart.ts';
import { type Page, PageError, type PageServices, type Visit } from '../console.ts';
import { badge, duration, empty, pathWith, table, uuid } from '../layout.ts';

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
<p class="lead">Each with its limits, and with what was applied in it by day. The oldest first.</p>
<form class="row" method="get" action="/workspaces" role="search"><label class="grow">Name or id, in full <input type="search" name="q" maxlength="255" autocomplete="off"></label><button class="main">Look up</button></form>
${
  shown.length === 0
    ? empty('None behind this one', html`<a href="/workspaces">The first ones</a>`)
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
  async handle({ services, viewer, findWorkspace, params }) {
    const workspace = isUuid(params.id ?? '') ? await findWorkspace(params.id!) : undefined;
    if (!workspace) throw new PageError(404, 'Workspace not found, or your account has no permission in it.');
    const { prisma } = services.database;
    const [overrides, usage] = await Promise.all([
      prisma.rateLimit.findMany({ where: { workspaceId: workspace.id } }),
      readUsage(services, workspace),
    ]);
    const isOperator = viewer.accountId === undefined;
    const body = html`<h1>${workspace.name}</h1>
<p class="lead">Workspace ${uuid(workspace.id)}${viewer.can('keys', workspace.id) && html` · <a href="${pathWith('/keys', { workspace: workspace.id })}">its API keys</a>, with the requests of each`}</p>
<h2>Usage</h2>${usageOf(usage)}
<h2>Limits</h2>
<p class="lead">Requests that it may make of one bucket, in one window. A web process that refuses one answers 429.</p>
${limitTable(overrides, services)}
${isOperator && limitForm(workspace, overrides)}`;
    return { title: workspace.name, body };
  },
};

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
<p class="faint pager">Days are those of UTC. <code>penstock usage</code> has earlier ones.</p>`;
}

function limitTable(overrides: RateLimitOverride[], { config }: PageServices): Html {
  const given = new Map(overrides.map((one) => [one.bucket, one]));
  return table(
    'Limits',
    ['Bucket', { name: 'Requests', number: true }, 'In', 'Whose'],
    Object.entries(bucketsOf(rulesOf[config.VENDOR_RULES])).map(([bucket, usual]) => {
      const { requests, windowSeconds } = given.get(bucket) ?? usual;
      return [
        html`<code>${bucket}</code>`,
        grouped(requests),
        duration(windowSeconds),
        given.has(bucket) ? badge('its own', 'warn') : 'as every workspace',
      ];
    }),
  );
}

function limitForm({ id }: Workspace, overrides: RateLimitOverride[]): Html {
  const options = (names: string[]) => names.map((name) => html`<option value="${name}">${name}</option>`);
  return html`<h2>Change a limit</h2>
<form class="row" method="post" action="/workspaces/${id}">
<label>Bucket <select name="bucket">${options(Object.keys(buckets))}</select></label>
<label>Requests <input name="requests" inputmode="numeric" required autocomplete="off"></label>
<label>In seconds <input name="window_seconds" inputmode="numeric" required autocomplete="off"></label>
<button class="main" name="action" value="set">Set</button></form>
${
  overrides.length > 0 &&
  html`<form class="row" method="post" action="/workspaces/${id}">
<label>Its own limit of <select name="bucket">${options(overrides.map(({ bucket }) => bucket))}</select></label>
<button name="action" value="reset">Remove limit</button></form>`
}`;
}

const act: Page<PageServices> = {
  method: 'post',
  path: '/workspaces/:id',
  // Limits protect the installation from a workspace, so its own users cannot change them.
  right: 'operator',
  async handle(visit) {
    const { services, viewer, params, actor, field } = visit;
    const workspaceId = params.id ?? '';
    if ((await viewer.find('usage', workspaceId))?.id !== workspaceId)
      throw new PageError(404, 'Workspace not found.');
    const bucket = field('bucket');
    if (!Object.hasOwn(buckets, bucket))
      throw new PageError(400, "'bucket' must be one of the buckets in the list.");
    const back = (done: string) => ({ to: pathWith(`/workspaces/${workspaceId}`, { done }) });
    switch (field('action')) {
      case 'set': {
        const limit = {
          requests: readPart(visit, 'requests'),
          windowSeconds: readPart(visit, 'window_seconds'),
        };
        await setRateLimit(services.database, actor, {
          ...{ workspaceId, bucket: bucket as BucketName, ...limit },
        });
        return back('limited');
      }
      case 'reset': {
        const count = await resetRateLimits(services.database, actor, { workspaceId, bucket });
        return back(count > 0 ? 'unlimited' : 'as_before');
      }
      default:
        throw new PageError(400, "'action' must be set or reset.");
    }
  },
};

/** @throws {PageError} naming the field and its rule */
function readPart({ field }: Visit<PageServices>, name: string): number {
  try {
    return readCount(field(name));
  } catch (error) {
    throw error instanceof InvalidValue ? new PageError(400, `'${name}': ${error.message}`) : error;
  }
}

export const workspacePages = [list, show, act];
