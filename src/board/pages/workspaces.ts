import { DateTime } from 'luxon';
import { grouped } from '../../platform/format.ts';
import { type Html, html, type Part } from '../../platform/html.ts';
import { isUuid } from '../../profile/values.ts';
import { choice, readCount, text } from '../../resources/fields.ts';
import { type BucketName, buckets } from '../../schemas/limits.ts';
import { bucketsOf, rulesOf } from '../../schemas/vendor-rules.ts';
import { type RateLimitOverride, resetRateLimits, setRateLimit } from '../../store/rate-limits.ts';
import type { Workspace } from '../access.ts';
import { dailyChart } from '../chart.ts';
import { type Page, PageError, type PageServices, type Visit } from '../console.ts';
import { badge, duration, empty, pathWith, table, uuid } from '../layout.ts';
import { formFields, formProblem, readForm, type Sent } from '../resource-form.ts';

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

/** @param sent the form of a limit that has an error */
async function workspacePage(
  { services, viewer, query }: Visit<PageServices>,
  workspace: Workspace,
  sent?: Sent,
): Promise<Html> {
  const { prisma } = services.database;
  const [overrides, usage] = await Promise.all([
    prisma.rateLimit.findMany({ where: { workspaceId: workspace.id } }),
    readUsage(services, workspace),
  ]);
  const isOperator = viewer.accountId === undefined;
  const limits = limitsOf(overrides, services);
  const chosen = limits.find(({ bucket }) => bucket === query('bucket'));
  return html`<h1>${workspace.name}</h1>
<p class="lead">Workspace ${uuid(workspace.id)}${viewer.can('keys', workspace.id) && html` · <a href="${pathWith('/keys', { workspace: workspace.id })}">API keys</a>`}</p>
<h2>Usage</h2>${usageOf(usage)}
<h2>Limits</h2>
<p class="lead">Maximum number of requests by bucket and window. Web answers further requests with 429.</p>
${limitTable(limits, isOperator ? workspace : undefined)}
${isOperator && limitForm(workspace, { chosen, sent })}`;
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

/** The limit of one bucket in a workspace. */
interface Limit {
  bucket: string;
  requests: number;
  windowSeconds: number;
  /** Whether the workspace has its own limit, instead of the default. */
  isOwn: boolean;
}

function limitsOf(overrides: RateLimitOverride[], { config }: PageServices): Limit[] {
  const given = new Map(overrides.map((one) => [one.bucket, one]));
  return Object.entries(bucketsOf(rulesOf[config.VENDOR_RULES])).map(([bucket, usual]) => {
    const { requests, windowSeconds } = given.get(bucket) ?? usual;
    return { bucket, requests, windowSeconds, isOwn: given.has(bucket) };
  });
}

/** @param changeable the workspace if the viewer may change its limits */
function limitTable(limits: Limit[], changeable: Workspace | undefined): Html {
  const reset = ({ bucket }: Limit, { id }: Workspace) =>
    html`<form method="post" action="/workspaces/${id}"><input type="hidden" name="bucket" value="${bucket}"><button name="action" value="reset" aria-label="Remove limit of ${bucket}">Remove limit</button></form>`;
  return table(
    'Limits',
    ['Bucket', { name: 'Requests', number: true }, 'In', 'Source', ...(changeable ? ['Actions'] : [])],
    limits.map((limit) => [
      html`<code>${limit.bucket}</code>`,
      grouped(limit.requests),
      duration(limit.windowSeconds),
      limit.isOwn ? badge('own limit', 'warn') : 'default',
      ...(changeable
        ? [
            html`<div class="buttons"><a class="button" href="${pathWith(`/workspaces/${changeable.id}`, { bucket: limit.bucket })}#limit" aria-label="Change limit of ${limit.bucket}">Change</a>${limit.isOwn && reset(limit, changeable)}</div>`,
          ]
        : []),
    ]),
  );
}

const limitFields = {
  bucket: choice({ label: 'Bucket', help: 'Endpoints that share the limit' }, Object.keys(buckets)),
  requests: text({ label: 'Requests', help: 'Maximum number of requests per window' }, readCount),
  window_seconds: text({ label: 'Window in seconds', help: 'For example 60' }, readCount),
};

/** @param chosen the limit whose values fill the form */
function limitForm(
  { id }: Workspace,
  { chosen, sent }: { chosen: Limit | undefined; sent: Sent | undefined },
): Html {
  const filled = chosen && {
    ...{ bucket: chosen.bucket, requests: String(chosen.requests) },
    window_seconds: String(chosen.windowSeconds),
  };
  return html`<h2 id="limit">Change a limit</h2>
<form class="stack card" method="post" action="/workspaces/${id}#limit">${formProblem(sent)}
${formFields(limitFields, { id: 'limit', sent, filled })}
<p class="actions"><button class="main" name="action" value="set">Set limit</button></p></form>`;
}

const act: Page<PageServices> = {
  method: 'post',
  path: '/workspaces/:id',
  // Limits protect the installation from a workspace, so its own users cannot change them.
  right: 'operator',
  async handle(visit) {
    const { services, viewer, params, actor, field } = visit;
    const workspaceId = params.id ?? '';
    const found = await viewer.find('usage', workspaceId);
    if (found?.id !== workspaceId) throw new PageError(404, 'Workspace not found.');
    const back = (done: string) => ({ to: pathWith(`/workspaces/${workspaceId}`, { done }) });
    switch (field('action')) {
      case 'set': {
        const { values, ...sent } = readForm(visit, limitFields);
        if (Object.keys(sent.problems).length > 0)
          return { title: found.name, status: 400, body: await workspacePage(visit, found, sent) };
        await setRateLimit(services.database, actor, {
          ...{ workspaceId, bucket: values.bucket as BucketName },
          ...{ requests: values.requests as number, windowSeconds: values.window_seconds as number },
        });
        return back('limited');
      }
      case 'reset': {
        const bucket = field('bucket');
        if (!Object.hasOwn(buckets, bucket))
          throw new PageError(400, "'bucket' must be one of the buckets in the list.");
        const count = await resetRateLimits(services.database, actor, { workspaceId, bucket });
        return back(count > 0 ? 'unlimited' : 'as_before');
      }
      default:
        throw new PageError(400, "'action' must be set or reset.");
    }
  },
};

export const workspacePages = [list, show, act];
