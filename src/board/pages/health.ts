import { MAX_DEAD_LETTERS } from '../../checks/read.ts';
import type { StoreState } from '../../checks/readings.ts';
import { amount, living } from '../../checks/text.ts';
import { grouped, rangesOf } from '../../platform/format.ts';
import { type Html, html, type Part } from '../../platform/html.ts';
import { confirmLoss, forgetSilent } from '../../resources/operator-actions.ts';
import { Refusal } from '../../resources/refusal.ts';
import type { QueueLoss } from '../../store/installation.ts';
import { type SeenProcess, SILENT_SECONDS, unworkedLanes, workersOf } from '../../store/processes.ts';
import { isPermitted } from '../access.ts';
import { type Page, PageError, type PageServices } from '../console.ts';
import type { FleetState } from '../fleet.ts';
import { badge, count, duration, empty, fullTime, moment, table } from '../layout.ts';
import { problemList } from '../problems.ts';
import { charts, chartsHead, rangeOf } from './history.ts';

const MB = 1024 * 1024;
const GB = 1024 * MB;

/** The store that holds the queue. */
type Kind = PageServices['connection']['kind'];

/** Renders the parts of the page that are updated live and do not depend on the viewer, by name. */
export function healthParts(now: FleetState, kind: Kind): Record<string, Html> {
  return {
    as_of: html`As of ${fullTime(now.at)}`,
    figures: figures(now),
    lanes: html`${shardTable(now)}${laneTable(now)}`,
    processes: processTable(now.processes),
    stores: storeTable(now, kind),
    marks: markTable(now.processes, kind),
  };
}

/** Wraps a part, so that the script can replace it. */
const part = (name: string, content: Html) => html`<div data-live="${name}">${content}</div>`;

const show: Page<PageServices> = {
  method: 'get',
  path: '/',
  right: 'anyone',
  async handle({ services, query, viewer }) {
    const range = rangeOf(query('range'));
    const now = await services.fleet.read();
    const parts = healthParts(now, services.connection.kind);
    const isAway = () => services.lacking().some(({ name }) => name === 'postgres');
    const drawn = now.processes ? await charts(services.database.pool, { range, isAway }) : undefined;
    const body = html`<h1>Health</h1>
<p class="faint live" data-live-from="/events?range=${range}"><span data-live="as_of">${parts.as_of}</span> <span data-live-state></span></p>
${part('problems', problemList(now.problems, viewer))}${part('figures', parts.figures!)}
<h2 id="lanes">Lanes</h2>${part('lanes', parts.lanes!)}
${isPermitted(viewer, 'operator') && html`<p class="faint pager">To change the number of lanes, stop all processes and run <code>penstock queue set-lanes 4</code>.</p>`}
<h2 id="processes">Processes</h2>${part('processes', parts.processes!)}
${isPermitted(viewer, 'operator') && operatorForms(now, services.loss())}
<h2>Stores</h2>${part('stores', parts.stores!)}
<h2 id="limits">Load shedding</h2>${part('marks', parts.marks!)}
${drawn && html`${chartsHead(range)}${part('charts', drawn)}`}`;
    return { title: 'Health', body, problems: now.problems };
  },
};

/** Renders the actions on the installation; empty if no process is silent and no loss is unconfirmed. */
const operatorForms = (
  { processes = [] }: Pick<FleetState, 'processes'>,
  loss: QueueLoss | undefined,
): Part =>
  html`${
    processes.some(({ silentSeconds }) => silentSeconds > SILENT_SECONDS) &&
    html`<form method="post" action="/"><p class="actions"><button name="action" value="forget">Remove silent processes from the list</button> <span class="faint">A process that still runs is back with its next heartbeat.</span></p></form>`
  }${
    loss &&
    html`<form method="post" action="/"><input type="hidden" name="loss" value="${loss.latest}"><p class="actions"><button class="danger" name="action" value="confirm_loss">Confirm the loss ${loss.latest}</button> <span class="faint">Ends the message about this loss and all earlier ones. Senders have to send the lost objects again.</span></p></form>`
  }`;

const act: Page<PageServices> = {
  method: 'post',
  path: '/',
  right: 'operator',
  async handle({ services: { database }, actor, field }) {
    switch (field('action')) {
      case 'forget':
        await forgetSilent({ database, actor });
        return { to: '/?done=forgotten' };
      case 'confirm_loss': {
        const number = Number(field('loss'));
        if (!Number.isSafeInteger(number) || number < 1)
          throw new PageError(400, "'loss' must be the number of a loss.");
        await confirmLoss({ database, actor }, number).catch((error: unknown) => {
          throw error instanceof Refusal ? new PageError(400, error.message) : error;
        });
        return { to: '/?done=confirmed' };
      }
      default:
        throw new PageError(400, "'action' must be forget or confirm_loss.");
    }
  },
};

const rounded = (value: number) => grouped(Math.round(value));

const rateOf = (processes: SeenProcess[]) =>
  processes.reduce((sum, { objectsPerSecond }) => sum + objectsPerSecond, 0);

function figures({
  lanes,
  processes,
  deadLetters: letters,
  rates,
}: Pick<FleetState, 'lanes' | 'processes' | 'deadLetters' | 'rates'>): Html {
  const waiting = lanes?.reduce((sum, { depth }) => sum + depth, 0);
  const oldest = lanes && Math.max(0, ...lanes.map(({ oldestSeconds }) => oldestSeconds));
  const refused =
    processes && living(processes, 'web').reduce((sum, { refusedPerSecond }) => sum + refusedPerSecond, 0);
  const shown: [string, Part][] = [
    ['Accepted', processes && `${rounded(rateOf(living(processes, 'web', 'sync')))} objects/s`],
    ['Applied', processes && `${rounded(rateOf(living(processes, 'worker')))} objects/s`],
    ['Refused with 429 or 503', refused === undefined ? undefined : `${rounded(refused)} requests/s`],
    ['New dead letters', rates && `${rounded(rates.deadLetters)} objects/s`],
    ['Waiting', waiting === undefined ? undefined : count(waiting, 'job')],
    ['Oldest waiting', oldest === undefined ? undefined : waiting === 0 ? 'none' : duration(oldest)],
    [
      'Dead letters',
      letters === undefined
        ? undefined
        : letters.isMore
          ? `over ${grouped(MAX_DEAD_LETTERS)}`
          : grouped(letters.count),
    ],
  ];
  return html`<dl class="figures">${shown.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value ?? html`<span class="faint">unknown</span>`}</dd></div>`)}</dl>`;
}

/** Returns the state of a process that needs attention; undefined if it works. */
function troubleOf({ silentSeconds, missing, marks }: SeenProcess): string | undefined {
  if (silentSeconds > SILENT_SECONDS) return 'silent';
  if (missing.length > 0) return `without ${missing.join(', ')}`;
  return Object.values(marks ?? {}).some(({ over }) => over) ? 'refuses requests' : undefined;
}

/** Counts the processes by kind, for example `3 processes: board, 2 worker`. */
function summaryOf(processes: SeenProcess[]): string {
  const counts = new Map<string, number>();
  for (const { name } of processes) counts.set(name, (counts.get(name) ?? 0) + 1);
  const kinds = [...counts].sort().map(([name, number]) => (number === 1 ? name : `${number} ${name}`));
  return `${count(processes.length, 'process', 'processes')}: ${kinds.join(', ')}`;
}

/** Renders the processes: one line while all of them work, otherwise a table. */
function processTable(processes: SeenProcess[] | undefined): Html {
  if (!processes || processes.length === 0)
    return empty(
      'No processes',
      'Every process appears within five seconds of its start if Postgres answers.',
    );
  const shown = table(
    'Processes',
    [
      'Process',
      'State',
      'Last heartbeat',
      { name: 'Objects/s', number: true },
      { name: 'Memory', number: true },
      { name: 'Busy', number: true },
      'Lanes',
      'Release',
      'Started',
    ],
    processes.map((one) => [
      html`<strong>${one.name}</strong> <span class="faint">${one.host}, pid ${one.pid}</span>`,
      troubleOf(one) === undefined ? badge('running', 'good') : badge(troubleOf(one)!, 'bad'),
      `${duration(one.silentSeconds)} ago`,
      rounded(one.objectsPerSecond),
      `${rounded(one.residentBytes / MB)} MB`,
      `${Math.round(one.loopBusy * 100)} %`,
      rangesOf(one.held?.map(({ lane }) => lane) ?? one.lanes),
      one.version,
      moment(one.startedAt),
    ]),
  );
  if (processes.some((one) => troubleOf(one) !== undefined)) return shown;
  return html`<details class="quiet-list"><summary>${badge('running', 'good')} ${summaryOf(processes)}</summary>${shown}</details>`;
}

function laneTable({
  lanes,
  processes = [],
  rates,
}: Pick<FleetState, 'lanes' | 'processes' | 'rates'>): Html {
  if (!lanes)
    return empty('Unknown', 'The number of waiting jobs is unknown. See the message above for the cause.');
  const nobodys = new Set(unworkedLanes(processes, lanes.length));
  const shards = new Set(lanes.map(({ shard = 0 }) => shard)).size;
  return table(
    'Lanes',
    [
      'Lane',
      { name: 'Jobs', number: true },
      { name: 'Oldest', number: true },
      { name: 'Applied', number: true },
      'Worker',
    ],
    lanes.map(({ depth, oldestSeconds, shard = 0, away }, lane) => {
      const [worked] = workersOf(processes, lane);
      const rate = rates?.lanes[lane];
      return [
        html`<a href="/queues/queue/lane-${lane}">${shards > 1 ? `${lane} (shard ${shard})` : lane}</a>`,
        away ? badge('away', 'bad') : grouped(depth),
        depth === 0 ? '' : duration(oldestSeconds),
        rate === undefined ? '' : `${rounded(rate)} objects/s`,
        worked
          ? `${worked.worker.host}, pid ${worked.worker.pid}`
          : nobodys.has(lane)
            ? badge('no worker', depth === 0 ? 'warn' : 'bad')
            : html`<span class="faint">${depth === 0 ? 'idle' : 'no worker in the last 10 s'}</span>`,
      ];
    }),
  );
}

/** Renders the totals of each shard if there are several. */
function shardTable({ lanes = [], rates }: Pick<FleetState, 'lanes' | 'rates'>): Html | undefined {
  const shards = new Map<number, { waiting: number; oldest: number; rate: number; isAway: boolean }>();
  for (const [lane, { depth, oldestSeconds, shard = 0, away = false }] of lanes.entries()) {
    const { waiting, oldest, rate, isAway } = shards.get(shard) ?? {
      ...{ waiting: 0, oldest: 0, rate: 0, isAway: false },
    };
    shards.set(shard, {
      waiting: waiting + depth,
      oldest: depth === 0 ? oldest : Math.max(oldest, oldestSeconds),
      rate: rate + (rates?.lanes[lane] ?? 0),
      isAway: isAway || away,
    });
  }
  if (shards.size < 2) return undefined;
  return table(
    'Shards',
    [
      'Shard',
      { name: 'Jobs', number: true },
      { name: 'Oldest', number: true },
      { name: 'Applied', number: true },
    ],
    [...shards].map(([shard, { waiting, oldest, rate, isAway }]) => [
      String(shard),
      isAway ? badge('away', 'bad') : grouped(waiting),
      waiting === 0 ? '' : duration(oldest),
      rates ? `${rounded(rate)} objects/s` : '',
    ]),
  );
}

const milliseconds = (time: number) => `${time < 10 ? time.toFixed(1) : Math.round(time)} ms`;

const megabytes = ({ used, most }: StoreState) =>
  `${rounded(used / MB)} MB${most > 0 ? ` of ${rounded(most / MB)} MB` : ''}`;

const reachable = (is: boolean) => (is ? badge('reachable', 'good') : badge('away', 'bad'));

function storeTable(
  {
    postgres,
    redis,
    disks,
    lanes,
    problems,
  }: Pick<FleetState, 'postgres' | 'redis' | 'disks' | 'lanes' | 'problems'>,
  kind: Kind,
): Html {
  const isFilling = problems.some(({ id }) => id === 'disk-filling');
  const answers = (state: StoreState | undefined) => (state ? milliseconds(state.latency) : '');
  return table(
    'Stores',
    ['Store', 'State', { name: 'Answers in', number: true }, { name: 'Filled', number: true }],
    [
      [
        'Postgres',
        reachable(postgres !== undefined),
        answers(postgres),
        postgres?.most ? `${postgres.used} of ${count(postgres.most, 'connection')}` : '',
      ],
      kind === 'redis'
        ? ['Redis', reachable(redis !== undefined), answers(redis), redis ? megabytes(redis) : '']
        : ['Queue, in Postgres', reachable(lanes !== undefined), '', ''],
      ...(disks ?? []).map((disk) => [
        html`Disk of <code>DATA_DIR</code>`,
        isFilling ? badge('nearly full', 'bad') : badge('has room', 'good'),
        '',
        `${rounded((disk.sizeBytes - disk.freeBytes) / GB)} GB of ${rounded(disk.sizeBytes / GB)} GB`,
      ]),
    ],
  );
}

/** Renders each load limit with the usage of the fullest web process. */
function markTable(processes: SeenProcess[] | undefined, kind: Kind): Html {
  const web = living(processes ?? [], 'web').filter(({ marks }) => marks);
  if (web.length === 0)
    return empty('No load limits', 'Web processes report every five seconds how much of each limit is used.');
  const used = (process: SeenProcess, name: string) => {
    const { value, mark } = process.marks![name] ?? { value: 0, mark: 1 };
    return value / mark;
  };
  const names = [...new Set(web.flatMap(({ marks }) => Object.keys(marks!)))].filter(
    (name) => kind === 'redis' || name !== 'redis_memory',
  );
  return table(
    'Load limits',
    ['Limit', 'State', { name: 'Current', number: true }, { name: 'Threshold', number: true }, 'Process'],
    names.map((name) => {
      const having = web.filter(({ marks }) => marks![name]);
      const fullest = having.reduce((before, one) => (used(one, name) > used(before, name) ? one : before));
      const over = web.filter(({ marks }) => marks![name]?.over).length;
      const { value, mark, unit } = fullest.marks![name]!;
      return [
        html`<code>${name}</code>`,
        over > 0 ? badge(`refuses in ${over} of ${web.length}`, 'bad') : badge('accepts requests', 'good'),
        amount(value, unit),
        amount(mark, unit),
        web.length === 1 ? 'the web process' : `${fullest.host}, pid ${fullest.pid}`,
      ];
    }),
  );
}

export const healthPages = [show, act];
