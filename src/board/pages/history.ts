import { grouped } from '../../platform/format.ts';
import { type Html, html, type Part } from '../../platform/html.ts';
import { unlessUnavailable } from '../../platform/lifecycle.ts';
import type { Pool } from '../../store/database.ts';
import { lineChart, sparkline } from '../chart.ts';
import type { Page, PageServices } from '../console.ts';
import { type Point, type RangeName, rangeNames, readHistory } from '../history.ts';
import { type Column, count, duration, empty, fullTime, pathWith, table } from '../layout.ts';

/** Formats a number: two decimals below 10, otherwise a whole number. */
const short = (value: number) =>
  value < 10 ? String(Math.round(value * 100) / 100) : grouped(Math.round(value));

const shows = {
  objects: (value: number) => `${short(value)} objects/s`,
  requests: (value: number) => `${short(value)} requests/s`,
  jobs: (value: number) => count(value, 'job'),
  workers: (value: number) => count(value, 'worker'),
  milliseconds: (value: number) => `${short(value)} ms`,
};

type Figure = Exclude<keyof Point, 'at' | 'lanes'>;

interface Plan {
  name: string;
  lines: { name: string; figure: Figure }[];
  show(value: number): string;
  least: number;
}

/** Charts of the page. Refused requests and refused objects differ in unit, so each has its own chart. */
const plans: Plan[] = [
  {
    ...{ name: 'Objects', show: shows.objects, least: 1 },
    lines: [
      { name: 'Accepted', figure: 'accepted' },
      { name: 'Applied', figure: 'applied' },
    ],
  },
  {
    name: 'Requests refused with 429 or 503',
    lines: [{ name: 'Refused', figure: 'refused' }],
    show: shows.requests,
    least: 0.1,
  },
  {
    name: 'New dead letters',
    lines: [{ name: 'Dead letters', figure: 'deadLetters' }],
    show: shows.objects,
    least: 0.1,
  },
  {
    name: 'Jobs in the lanes',
    lines: [{ name: 'Waiting or running', figure: 'waiting' }],
    show: shows.jobs,
    least: 10,
  },
  { name: 'Oldest waiting', lines: [{ name: 'Oldest', figure: 'oldestSeconds' }], show: duration, least: 1 },
  { name: 'Workers', lines: [{ name: 'Running', figure: 'workers' }], show: shows.workers, least: 1 },
  {
    ...{ name: 'Response time of the stores', show: shows.milliseconds, least: 5 },
    lines: [
      { name: 'Postgres', figure: 'postgresMs' },
      { name: 'Redis', figure: 'redisMs' },
    ],
  },
];

/** Returns the figures that the installation has: without Redis, no point has its response time. */
const shownFigures = <One extends { figure: Figure }>(all: readonly One[], points: Point[]): One[] =>
  all.filter(({ figure }) => figure !== 'redisMs' || points.some(({ redisMs }) => redisMs !== undefined));

export function rangeOf(given: string): RangeName {
  return rangeNames.find((name) => name === given) ?? 'hour';
}

/** @param place fragment of the link, for example `#history` */
const rangeTabs = (path: string, range: RangeName, fragment = '') =>
  html`<nav class="tabs" aria-label="Time that is shown">${rangeNames.map(
    (name) =>
      html`<a class="tab" href="${pathWith(path, { range: name === 'hour' ? undefined : name })}${fragment}"${name === range && html` aria-current="page"`}>Last ${name}</a>`,
  )}</nav>`;

/** Renders the heading of the charts. It stays in place when live updates replace the charts. */
export const chartsHead = (range: RangeName): Html =>
  html`<h2 id="history">History</h2>${rangeTabs('/', range, '#history')}
<p class="faint">Times of the charts are in the time zone <span data-zone>UTC</span>.</p>`;

/** Renders the charts of a range, or a hint if the history is empty or cannot be read. */
export async function charts(
  pool: Pool,
  { range, isAway }: { range: RangeName; isAway(): boolean },
): Promise<Html> {
  const points = await unlessUnavailable(isAway, () => readHistory(pool, range)).catch(() => undefined);
  if (!points) return empty('Unknown', 'Postgres does not answer. The stored history is not lost.');
  if (!points.some(({ workers }) => workers !== undefined))
    return empty(
      `No history for the last ${range}`,
      'This process writes one row per minute while Postgres answers. Reload the page in a minute.',
    );
  const times = points.map(({ at }) => at);
  const drawn = plans.map(({ name, lines, show, least }) =>
    lineChart(name, {
      ...{ times, show, minTop: least, axis: range === 'week' ? 'day' : 'time' },
      lines: shownFigures(lines, points).map((line) => ({
        name: line.name,
        values: points.map((point) => point[line.figure]),
      })),
    }),
  );
  return html`<div class="charts">${drawn}</div>
<p class="faint pager">From ${fullTime(new Date(times[0]!))} to ${fullTime(new Date(times.at(-1)!))}. Shaded: no data. <a href="${pathWith('/history', { range })}">Show as table</a></p>
${lanesOf(points, range)}`;
}

/** Renders a table by lane if there are several lanes. */
function lanesOf(points: Point[], range: RangeName): Part {
  const lanes = points.findLast((point) => point.lanes)?.lanes?.length ?? 0;
  if (lanes < 2) return undefined;
  const mean = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const rows = Array.from({ length: lanes }, (_, lane) => {
    const depth = points.map((point) => point.lanes?.[lane]?.depth);
    const applied = points.flatMap((point) => point.lanes?.[lane]?.applied ?? []);
    const depths = depth.filter((one) => one !== undefined);
    return [
      lane,
      sparkline(depth),
      depths.length === 0 ? '' : grouped(Math.max(...depths)),
      applied.length === 0 ? '' : shows.objects(mean(applied)),
      applied.length === 0 ? '' : shows.objects(Math.max(...applied)),
    ];
  });
  return table(
    `Lanes in the last ${range}`,
    [
      'Lane',
      'Jobs over time',
      { name: 'Jobs at most', number: true },
      { name: 'Applied on average', number: true },
      { name: 'Applied at most', number: true },
    ],
    rows,
  );
}

/** Columns of the table. The unit is in the heading, so that cells are numbers only. */
const figureColumns: { name: string; figure: Figure }[] = [
  { name: 'Accepted (objects/s)', figure: 'accepted' },
  { name: 'Applied (objects/s)', figure: 'applied' },
  { name: 'Refused (requests/s)', figure: 'refused' },
  { name: 'Dead letters (objects/s)', figure: 'deadLetters' },
  { name: 'Jobs', figure: 'waiting' },
  { name: 'Oldest (s)', figure: 'oldestSeconds' },
  { name: 'Workers', figure: 'workers' },
  { name: 'Postgres (ms)', figure: 'postgresMs' },
  { name: 'Redis (ms)', figure: 'redisMs' },
];

const list: Page<PageServices> = {
  method: 'get',
  path: '/history',
  right: 'anyone',
  async handle({ services, query }) {
    const range = rangeOf(query('range'));
    const points = await readHistory(services.database.pool, range);
    const recorded = points.filter(({ workers }) => workers !== undefined).reverse();
    const shown = shownFigures(figureColumns, points);
    const body = html`<h1>History</h1>
<p class="lead">The values of the charts of <a href="${pathWith('/', { range })}">Health</a>, latest first. Refused requests got 429 or 503. An empty cell has no data. Times are in the time zone <span data-zone>UTC</span>.</p>
${rangeTabs('/history', range)}
${
  recorded.length === 0
    ? empty(
        `No history for the last ${range}`,
        'This process writes one row per minute while Postgres answers. Reload the page in a minute.',
      )
    : table(
        `The last ${range}`,
        ['From', ...shown.map(({ name }): Column => ({ name, number: true }))],
        recorded.map((point) => [
          fullTime(new Date(point.at)),
          ...shown.map(({ figure }) => {
            const value = point[figure];
            return value === undefined ? '' : short(value);
          }),
        ]),
      )
}`;
    return { title: 'History', body };
  },
};

export const historyPages = [list];
