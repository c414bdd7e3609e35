import { type Html, html, type Part } from '../../platform/html.ts';
import { grouped } from '../../platform/numbers.ts';
import type { LaneNow } from '../../queue/depth.ts';
import { countWaiting } from '../../store/dead-letter-groups.ts';
import { listProcesses, type SeenProcess, SILENT_SECONDS } from '../../store/processes.ts';
import { readSyncState } from '../../store/sync-lists.ts';
import type { Page, PageServices } from '../console.ts';
import { diagnose } from '../diagnosis.ts';
import { badge, count, duration, empty, moment, table } from '../layout.ts';

/** Dead letters that are counted here; the page about them counts by group. */
const MOST_LETTERS = 10_000;

/** Seconds between two looks of an open page. */
const REFRESH = 3;

const MB = 1024 * 1024;

const show: Page<PageServices> = {
  method: 'get',
  path: '/',
  right: 'anyone',
  async handle({ services }) {
    const { pool } = services.database;
    const quietly = <T>(work: Promise<T>): Promise<T | undefined> => work.catch(() => undefined);
    const begun = performance.now();
    const [processes, latency] = await quietly(
      listProcesses(pool).then((found) => [found, performance.now() - begun] as const),
    ).then((found) => found ?? [undefined, undefined]);
    const [lanes, letters, syncs, redis] = await Promise.all([
      services.depths.read(),
      processes && quietly(countWaiting(pool, MOST_LETTERS + 1)),
      processes && quietly(readSyncState(pool)),
      pingRedis(services),
    ]);
    const verdict = diagnose({
      missing: services.missing(),
      lanes,
      processes,
      deadLetters: letters ?? 0,
      failingSyncs: syncs?.failing ?? 0,
    });
    const body = html`<h1>Health</h1>
<div class="verdict ${verdict.tone}" role="status"><p><strong>${verdict.sentence}</strong></p>${verdict.advice !== undefined && html`<p>${verdict.advice}</p>`}</div>
${figures({ lanes, processes, letters })}
<h2>Processes</h2>${processTable(processes)}
<h2>Lanes</h2>${laneTable(lanes, processes)}
<h2>Stores</h2>${table(
      'Stores',
      ['Store', 'State', { name: 'Answers in', number: true }, { name: 'Memory', number: true }],
      [
        [
          'Postgres',
          latency === undefined ? badge('away', 'bad') : badge('reachable', 'good'),
          milliseconds(latency),
          '',
        ],
        services.connection.kind === 'redis'
          ? [
              'Redis',
              redis === undefined ? badge('away', 'bad') : badge('reachable', 'good'),
              milliseconds(redis?.latency),
              redis?.memory ?? '',
            ]
          : [
              'Queue, in Postgres',
              lanes === undefined ? badge('away', 'bad') : badge('reachable', 'good'),
              '',
              '',
            ],
      ],
    )}`;
    return { title: 'Health', body, refresh: REFRESH };
  },
};

const milliseconds = (time: number | undefined) =>
  time === undefined ? '' : `${time < 10 ? time.toFixed(1) : Math.round(time)} ms`;

/** How fast Redis answers, and what it holds; undefined: it does not, or there is none. */
async function pingRedis({ connection: { redis } }: PageServices) {
  if (redis?.status !== 'ready') return undefined;
  const begun = performance.now();
  const text = await redis.info('memory').catch(() => undefined);
  if (text === undefined) return undefined;
  const read = (name: string) => Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(text)?.[1] ?? 0);
  const [used, most] = [read('used_memory'), read('maxmemory')];
  const memory = `${grouped(Math.round(used / MB))} MB${most > 0 ? ` of ${grouped(Math.round(most / MB))} MB` : ''}`;
  return { latency: performance.now() - begun, memory };
}

interface Seen {
  lanes: LaneNow[] | undefined;
  processes: SeenProcess[] | undefined;
  letters: number | undefined;
}

const rateOf = (processes: SeenProcess[], name: string) =>
  Math.round(
    processes
      .filter((one) => one.name === name && one.silentSeconds <= SILENT_SECONDS)
      .reduce((sum, one) => sum + one.objectsPerSecond, 0),
  );

function figures({ lanes, processes, letters }: Seen): Html {
  const waiting = lanes?.reduce((sum, { depth }) => sum + depth, 0);
  const oldest = lanes && Math.max(0, ...lanes.map(({ oldestSeconds }) => oldestSeconds));
  const shown: [string, Part][] = [
    ['Accepted', processes && `${grouped(rateOf(processes, 'web'))} objects/s`],
    ['Applied', processes && `${grouped(rateOf(processes, 'worker'))} objects/s`],
    ['Waiting', waiting === undefined ? undefined : count(waiting, 'job')],
    ['Oldest waiting', oldest === undefined ? undefined : waiting === 0 ? 'none' : duration(oldest)],
    [
      'Dead letters',
      letters === undefined
        ? undefined
        : letters > MOST_LETTERS
          ? `over ${grouped(MOST_LETTERS)}`
          : grouped(letters),
    ],
  ];
  return html`<dl class="figures">${shown.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value ?? html`<span class="faint">unknown</span>`}</dd></div>`)}</dl>`;
}

function processTable(processes: SeenProcess[] | undefined): Html {
  if (!processes || processes.length === 0)
    return empty(
      'None is known',
      'Every process says so within five seconds of its start, as soon as Postgres answers.',
    );
  return table(
    'Processes',
    [
      'Process',
      'State',
      'Last heard',
      { name: 'Objects', number: true },
      { name: 'Memory', number: true },
      { name: 'Busy', number: true },
      'Lanes',
      'Release',
      'Started',
    ],
    processes.map((one) => [
      html`<strong>${one.name}</strong> <span class="faint">${one.host}, pid ${one.pid}</span>`,
      one.silentSeconds > SILENT_SECONDS
        ? badge('silent', 'bad')
        : one.missing.length > 0
          ? badge(`without ${one.missing.join(', ')}`, 'bad')
          : badge('running', 'good'),
      `${duration(one.silentSeconds)} ago`,
      `${grouped(Math.round(one.objectsPerSecond))}/s`,
      `${grouped(Math.round(one.residentBytes / MB))} MB`,
      `${Math.round(one.loopBusy * 100)} %`,
      one.lanes.join(', '),
      one.version,
      moment(one.startedAt),
    ]),
  );
}

function laneTable(lanes: LaneNow[] | undefined, processes: SeenProcess[] | undefined): Html {
  if (!lanes)
    return empty(
      'Unknown',
      'The queue does not say what waits. The sentence above says why, as far as it is known.',
    );
  const workerOf = (lane: number) =>
    processes?.find(
      (one) => one.name === 'worker' && one.lanes.includes(lane) && one.silentSeconds <= SILENT_SECONDS,
    );
  return table(
    'Lanes',
    ['Lane', { name: 'Jobs', number: true }, { name: 'Oldest', number: true }, 'Worked by'],
    lanes.map(({ depth, oldestSeconds }, lane) => {
      const worker = workerOf(lane);
      return [
        html`<a href="/queues/queue/lane-${lane}">${lane}</a>`,
        grouped(depth),
        depth === 0 ? '' : duration(oldestSeconds),
        worker
          ? `${worker.host}, pid ${worker.pid}`
          : html`<span class="faint">${depth === 0 ? 'idle' : 'nobody in the last 10 s'}</span>`,
      ];
    }),
  );
}

export const healthPages = [show];
