import { nextRun } from '../../integrations/schedule.ts';
import { now, nowDate } from '../../platform/clock.ts';
import { grouped } from '../../platform/format.ts';
import { html, type Part } from '../../platform/html.ts';
import { isUuid } from '../../profile/values.ts';
import type { Tone } from '../../resources/resource.ts';
import { type SelectedIntegration, selectIntegrations } from '../../store/integrations.ts';
import type { SelectedRun } from '../../store/sync-lists.ts';
import { barChart } from '../chart.ts';
import { chosenWorkspace, type Page, type PageServices } from '../console.ts';
import { badge, duration, empty, moment, nextPage, table, workspaceChoice } from '../layout.ts';

const PAGE = 50;

const tones: Record<string, Tone> = {
  ...{ active: 'good', paused: 'warn', draft: 'calm' },
  ...{ success: 'good', running: 'warn', partial: 'warn', error: 'bad', config_error: 'bad' },
};

export const statusBadge = (status: string) => badge(status.replace('_', ' '), tones[status]);

/** Renders the next scheduled start, or why there is none. */
export function nextOf({ status, schedule }: Pick<SelectedIntegration, 'status' | 'schedule'>): Part {
  if (status !== 'active') return html`<span class="faint">not while it is ${status}</span>`;
  return schedule === null
    ? html`<span class="faint">on demand</span>`
    : moment(nextRun(schedule, nowDate()));
}

/** Returns the duration of a run in seconds, up to now if it is still running. */
export function secondsOf({ startedAt, finishedAt }: SelectedRun): number {
  const until = finishedAt === null ? now() : Date.parse(finishedAt);
  return Math.max(0, (until - Date.parse(startedAt)) / 1000);
}

/** Renders duration and rows of the finished runs, oldest on the left; undefined if no run has finished. */
export function runCharts(runs: readonly SelectedRun[]): Part {
  const ended = runs.filter(({ finishedAt }) => finishedAt !== null).reverse();
  if (ended.length === 0) return undefined;
  const of = ({ startedAt }: SelectedRun) => `${startedAt.slice(0, 16).replace('T', ' ')} UTC`;
  return html`<div class="charts">${barChart('Duration of the runs', {
    parts: ['Duration'],
    bars: ended.map((run) => ({ of: of(run), values: [secondsOf(run)] })),
    show: duration,
  })}${barChart('Rows of the runs', {
    parts: ['synced', 'failed'],
    bars: ended.map((run) => ({ of: of(run), values: [run.rowsSynced, run.rowsFailed] })),
    show: grouped,
  })}</div>`;
}

const list: Page<PageServices> = {
  method: 'get',
  path: '/syncs',
  right: 'syncs',
  async handle(visit) {
    const { services, viewer, workspaces, query } = visit;
    const chosen = await chosenWorkspace(visit);
    const { pool } = services.database;
    const after = isUuid(query('after')) ? query('after') : undefined;
    // The table is small: a workspace has a few tens of rows.
    const found = await selectIntegrations(pool, {
      workspaceId: chosen?.id ?? onlyOf(workspaces),
      after,
      limit: PAGE + 1,
    });
    const shown = found.slice(0, PAGE).filter((one) => viewer.can('syncs', one.workspaceId));
    const several = workspaces.length > 1;
    const body = html`<h1>Syncs</h1>
<p class="lead">Warehouse integrations, whose rows are synced into profiles by a schedule or on demand.</p>
${several && html`<form class="row" method="get" action="/syncs">${workspaceChoice(workspaces, chosen)}<button>Show</button></form>`}
${
  shown.length === 0
    ? empty(
        'No integrations here',
        html`Define one with <code>penstock integrations create</code>; the guide to warehouse syncs has examples.`,
      )
    : table(
        'Integrations',
        [
          'Integration',
          ...(several ? ['Workspace'] : []),
          'Rows are',
          'Status',
          'Next run',
          'Last run',
          'Result',
          'Read up to',
        ],
        shown.map((one) => [
          html`<a href="/syncs/${one.id}">${one.name}</a>`,
          ...(several ? [one.workspace] : []),
          one.kind,
          statusBadge(one.status),
          nextOf(one),
          moment(one.lastJobStartedAt),
          one.lastJobStatus === null ? '' : statusBadge(one.lastJobStatus),
          moment(one.lastTimestamp),
        ]),
      )
}
${found.length > PAGE && nextPage('/syncs', { workspace: chosen?.id, after: found[PAGE - 1]!.id })}`;
    return { title: 'Syncs', body };
  },
};

const onlyOf = (workspaces: { id: string }[]) => (workspaces.length === 1 ? workspaces[0]!.id : undefined);

export const syncListPages = [list];
