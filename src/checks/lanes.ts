import { count, duration, grouped } from '../platform/format.ts';
import { type SeenProcess, unworkedLanes } from '../store/processes.ts';
import type { Check, Exceeded } from './check.ts';
import type { Readings } from './readings.ts';
import { lanesIn, living } from './text.ts';
import { LATE_SECONDS } from './thresholds.ts';

const STUCK = { seconds: 30 };
const RETRIES = { perSecond: 0.5 };
const EFFECT = { seconds: 5 };

interface Late {
  lane: number;
  depth: number;
  oldestSeconds: number;
}

/** Returns lanes whose oldest job has waited for more than LATE_SECONDS, provided that a worker runs. */
function lateLanes({ lanes = [], processes }: Readings): Late[] {
  if (!processes || living(processes, 'worker').length === 0) return [];
  return lanes
    .map(({ depth, oldestSeconds }, lane) => ({ lane, depth, oldestSeconds }))
    .filter(({ depth, oldestSeconds }) => depth > 0 && oldestSeconds > LATE_SECONDS);
}

const waitingIn = (late: Late[]) => late.reduce((sum, { depth }) => sum + depth, 0);

function whatWaits(late: Late[]): string {
  const waiting = waitingIn(late);
  const oldest = Math.max(...late.map(({ oldestSeconds }) => oldestSeconds));
  const where = lanesIn(late.map(({ lane }) => lane));
  return `${count(waiting, 'job')} ${waiting === 1 ? 'waits' : 'wait'} in ${where}, the oldest for ${duration(oldest)}`;
}

const sinceOf = (late: Late[], at: Date) =>
  new Date(at.getTime() - Math.max(...late.map(({ oldestSeconds }) => oldestSeconds)) * 1000);

const running = (processes: SeenProcess[] = []) => {
  const workers = living(processes, 'worker').length;
  return `${count(workers, 'worker')} ${workers === 1 ? 'runs' : 'run'}`;
};

const unworked = ({ processes = [], lanes = [] }: Readings) =>
  new Set(unworkedLanes(processes, lanes.length));

/**
 * Returns late lanes in which a worker has applied no job for ten seconds, although it has held them for longer. Empty
 * if the queue as a whole shrinks, because a restarted worker may need a while to catch up.
 */
function standingLanes(readings: Readings): Late[] {
  const { processes = [], at, drained } = readings;
  if ((drained ?? 0) > 0) return [];
  const nobodys = unworked(readings);
  const workers = living(processes, 'worker');
  return lateLanes(readings).filter(({ lane }) => {
    if (nobodys.has(lane) || workers.some((worker) => worker.lanes.includes(lane))) return false;
    const holders = workers.flatMap(({ held }) => held?.filter((one) => one.lane === lane) ?? []);
    return holders.every(({ since }) => at.getTime() - Date.parse(since) > LATE_SECONDS * 1000);
  });
}

/** Reports empty lanes without a worker. During the first seconds after a start, workers still distribute the lanes. */
function idleLanes({ processes = [], at }: Readings, nobodys: number[]): Exceeded[] {
  const workers = living(processes, 'worker');
  const isSettled = workers.every(({ startedAt }) => at.getTime() - startedAt.getTime() > SHARING_MS);
  if (workers.length === 0 || nobodys.length === 0 || !isSettled) return [];
  return [
    {
      sentence: `No worker has ${lanesIn(nobodys)}.`,
      severity: 'warning',
      impact: 'Objects that are added to these lanes do not take effect.',
    },
  ];
}

/** Milliseconds after a start during which workers distribute the lanes. */
const SHARING_MS = 15_000;

/** Checks of the lanes, which are ordered queues of jobs. */
export const laneChecks: readonly Check[] = [
  {
    id: 'shard-away',
    group: 'lanes',
    severity: 'critical',
    scope: 'shard',
    evaluators: ['fleet'],
    impact: 'Requests of its workspaces are refused with 503. Other workspaces continue.',
    firstStep: 'Restore the Redis primary of the shard.',
    link: '/#lanes',
    unless: ['redis-away'],
    find({ lanes = [] }) {
      const away = [...new Set(lanes.filter((one) => one.away).map(({ shard = 0 }) => shard))];
      return away.map((shard) => ({
        subject: `shard ${shard}`,
        sentence: `Shard ${shard} of the lanes does not answer.`,
      }));
    },
  },
  {
    id: 'lanes-differ',
    group: 'lanes',
    severity: 'critical',
    scope: 'installation',
    evaluators: ['machine'],
    impact: 'Processes with these settings exit when they start.',
    firstStep: 'Set LANES and SHARDS to those of the installation, or run: penstock queue set-lanes.',
    link: '/#lanes',
    find({ spread, settings }) {
      if (!spread || !settings) return [];
      const { shards } = spread;
      const lanes = spread.lanes / shards;
      if (shards !== settings.shards)
        return [
          {
            sentence: `SHARDS is ${settings.shards} here, and the installation has ${shards}.`,
            firstStep: `Set SHARDS=${shards}, or change the installation with penstock queue set-lanes ${settings.lanes} --shards ${settings.shards}.`,
          },
        ];
      if (lanes === settings.lanes) return [];
      return [
        {
          sentence: `LANES is ${settings.lanes} here, and the installation has ${lanes}.`,
          firstStep: `Set LANES=${lanes}, or change the installation with penstock queue set-lanes ${settings.lanes}.`,
        },
      ];
    },
  },
  {
    id: 'standstill',
    group: 'lanes',
    severity: 'critical',
    scope: 'installation',
    evaluators: ['process', 'prometheus'],
    impact: 'Accepted objects do not take effect. No object is lost.',
    firstStep: 'Check /readyz of each worker for what it lacks. If a worker does not answer, restart it.',
    link: '/#lanes',
    find: ({ own }) =>
      own?.standstill
        ? [{ sentence: `Jobs have waited for ${duration(own.standstill)}, and no worker has taken one.` }]
        : [],
    alert: {
      name: 'PenstockStandstill',
      expr: 'max(penstock_queue_standstill_seconds) > 0',
      summary: 'queue: jobs are waiting and no worker has taken any for {{ $value | humanizeDuration }}',
      meaning: 'Jobs wait, and no worker has taken one for longer than `MAX_STANDSTILL_MS`.',
      diagnose: [
        '1. Read the error line of `web`. It says whether workers are running.',
        '2. If no worker is running, continue with [PenstockNoWorker](#penstocknoworker).',
        '3. If workers are running, read `/readyz` of each. It names what is missing: migrated tables, Redis or Postgres. A frozen worker does not answer.',
      ],
      fix: [
        'Provide what is missing. Otherwise end the worker with SIGTERM, or with SIGKILL if it is frozen, and start another one. Other workers take its lanes within `LOCK_DURATION_MS`. A worker reopens a silent lane by itself after three times `LOCK_DURATION_MS`. If that does not help, the process exits after the same time again, and its supervisor has to restart it.',
      ],
    },
  },
  {
    id: 'lanes-unworked',
    group: 'lanes',
    severity: 'critical',
    scope: 'lane',
    evaluators: ['fleet', 'prometheus'],
    impact: 'Objects in these lanes do not take effect. Other lanes continue.',
    firstStep: 'Run `penstock workers`, and check that the workers reach Redis.',
    link: '/#lanes',
    unless: ['no-worker'],
    find(readings) {
      const nobodys = unworked(readings);
      const late = lateLanes(readings).filter(({ lane }) => nobodys.has(lane));
      if (late.length === 0) return idleLanes(readings, [...nobodys]);
      return [
        {
          sentence: `No worker has ${lanesIn(late.map(({ lane }) => lane))} although ${running(readings.processes)}: ${whatWaits(late)}.`,
          since: sinceOf(late, readings.at),
        },
      ];
    },
    alert: {
      name: 'PenstockLanesUnworked',
      expr: 'max(penstock_queue_lanes_unworked) > 0',
      for: '15s',
      summary: 'workers: {{ $value }} lanes have no worker',
      meaning:
        'According to the heartbeats, some lanes have had no worker for 15 s. Without any worker, the alert fires for all lanes, together with [PenstockNoWorker](#penstocknoworker).',
      diagnose: [
        '1. Run `penstock workers`. It names the lanes, and the workers of the other lanes.',
        "2. Search the workers' log for `lanes could not be redistributed`. The line has the reason: Redis does not answer, or the Redis user of Penstock may not run scripts on `{penstock}:shares:*`.",
      ],
      fix: [
        'Start Redis again, or give its user the right to run these scripts. Workers take such lanes within 5 s. If they do not, restart the workers one after another.',
      ],
    },
  },
  {
    id: 'lane-stuck',
    group: 'lanes',
    severity: 'critical',
    scope: 'lane',
    evaluators: ['fleet', 'process', 'prometheus'],
    unless: ['postgres-rejects-writes'],
    impact: 'Later jobs of the same workspaces in this lane wait too. Other lanes continue.',
    firstStep: 'Check `stuck` in /readyz of the workers, and sessions of Postgres that wait for a lock.',
    link: '/#lanes',
    normal: ({ lanes }) => lanes && 'no job has waited long in any lane',
    find(readings) {
      const own = (readings.own?.stuck ?? []).map(({ lane, seconds }) => ({
        subject: `lane ${lane}`,
        sentence: `The oldest job of lane ${lane} has waited for ${duration(seconds)}.`,
      }));
      const late = standingLanes(readings);
      if (late.length === 0) return own;
      const isTwo = new Set(living(readings.processes!, 'worker').map(({ version }) => version)).size > 1;
      return [
        ...own,
        {
          sentence: `${late.length === 1 ? 'A lane makes' : 'Lanes make'} no progress although ${running(readings.processes)}: ${whatWaits(late)}.`,
          since: sinceOf(late, readings.at),
          ...(isTwo && {
            firstStep:
              'Two releases run: if the first job was written by the later one, only workers of that release can read it. Finish the upgrade.',
          }),
        },
      ];
    },
    alert: {
      name: 'PenstockLaneStuck',
      expr: `max by (lane) (penstock_queue_stuck_seconds) > ${STUCK.seconds}`,
      summary: `{{ $labels.lane }}: a job has waited for {{ $value | humanizeDuration }} (threshold ${STUCK.seconds}s)`,
      meaning:
        'A job of a lane has waited for more than 30 s, and the lane does not move. A **lane** is an ordered queue that one worker at a time applies. The long backlog of one workspace does not fire this alert while the lane moves, because other workspaces take turns with it.',
      diagnose: [
        '1. Read `/readyz` of a worker. `stuck` names the job. `unreadable` instead of `stuck` means that the job was written by a [later release](upgrade.md#envelopes).',
        "2. Search the worker's log for `not applied yet` with its reason.",
        "3. In Postgres, run `select pid, query, pg_blocking_pids(pid) as holders from pg_stat_activity where wait_event_type = 'Lock'`. It lists the sessions that wait for a lock, and the sessions that hold it.",
        '4. For each holder, run `select usename, client_addr, application_name, state, xact_start, query from pg_stat_activity where pid = <holder>`. It names the program that holds the lock.',
        '5. If workers end unexpectedly, read the end of their logs.',
      ],
      fix: [
        '- If another program holds the lock, end its transaction: commit it, roll it back, or run `select pg_terminate_backend(<holder>)`, which rolls it back. The lane then continues by itself.',
        '- If one object fails, wait: it becomes a dead letter, and the lane continues.',
        '- If many lanes wait because there is too much work and the queue is in Redis, start more workers, up to `LANES` times `SHARDS`. With `QUEUE=postgres`, one worker works on all lanes. One worker at a time works on a lane, so more workers do not help a single lane that a lock or an object blocks.',
        '- If an object ends workers, wait: after four such ends it is [set aside](crashed-jobs.md), and the lane continues. Jobs of `sync` are set aside after two.',
        '- If the job is unreadable, finish the upgrade.',
      ],
    },
  },
  {
    id: 'job-unreadable',
    group: 'envelopes',
    severity: 'critical',
    scope: 'lane',
    evaluators: ['process', 'machine'],
    impact: 'The lane waits for a worker of a later release. Other lanes continue.',
    firstStep: 'Start workers of the release that wrote it; see docs/upgrade.md.',
    link: '/#lanes',
    normal: ({ own }) => own?.unreadable && 'workers of this release can read the next jobs',
    find: ({ own }) =>
      (own?.unreadable ?? []).map(({ lane, version, reads }) => ({
        subject: `lane ${lane}`,
        sentence: `Lane ${lane} waits for a worker of a later release: version ${version} comes next, and this release reads ${reads}.`,
      })),
  },
  {
    id: 'draining',
    group: 'lanes',
    severity: 'warning',
    scope: 'installation',
    evaluators: ['fleet'],
    impact: 'Objects take effect late.',
    firstStep:
      'If the number of waiting jobs does not fall, start another worker, or find the sender under Workspaces.',
    link: '/#lanes',
    unless: [
      ...['no-worker', 'lane-stuck', 'lanes-unworked', 'redis-away', 'postgres-away'],
      'postgres-rejects-writes',
    ],
    find(readings) {
      const late = lateLanes(readings);
      if (late.length === 0) return [];
      const waiting = (readings.lanes ?? []).reduce((sum, { depth }) => sum + depth, 0);
      const { drained = 0 } = readings;
      if (drained > 0)
        return [
          {
            sentence: `Draining: ${count(waiting, 'job')}, about ${duration(Math.max(1, Math.round(waiting / drained)))} left.`,
            severity: 'info',
            since: sinceOf(late, readings.at),
            firstStep: 'Wait until the queue is empty.',
          },
        ];
      const rate = living(readings.processes!, 'worker').reduce((sum, one) => sum + one.objectsPerSecond, 0);
      return [
        {
          sentence: `The workers are behind: ${whatWaits(late)}. They apply ${grouped(Math.round(rate))} objects/s.`,
          since: sinceOf(late, readings.at),
        },
      ];
    },
  },
  {
    id: 'worker-retries',
    group: 'lanes',
    severity: 'warning',
    scope: 'installation',
    evaluators: ['prometheus'],
    impact: 'Objects take effect later. No object is lost.',
    firstStep: 'Read the reason that Postgres gives in the log of the workers ("not applied yet").',
    link: '/#lanes',
    alert: {
      name: 'PenstockWorkerRetries',
      expr: `sum(rate(penstock_worker_retries_total[1m])) > ${RETRIES.perSecond}`,
      for: '15s',
      summary: `workers: {{ $value | humanize }} transactions are retried per second (threshold ${RETRIES.perSecond})`,
      meaning: 'In the last minute, workers have retried more than one transaction every two seconds.',
      diagnose: [
        "Search the workers' log for `not applied yet`. The line has the reason of Postgres: lost connections, a restart, or locks.",
      ],
      fix: [
        'Fix the named reason. If the reason is a deadlock, find other programs that write to the tables of Penstock. Penstock itself locks rows in one order.',
      ],
    },
  },
  {
    id: 'effect-slow',
    group: 'lanes',
    severity: 'warning',
    scope: 'installation',
    evaluators: ['prometheus'],
    impact: 'Clients read their own changes late.',
    firstStep:
      'Check in the console whether the queue grows. If it grows, add workers; otherwise check the disk and the locks of Postgres.',
    link: '/#lanes',
    alert: {
      name: 'PenstockEffectSlow',
      expr: `histogram_quantile(0.99, sum by (le) (rate(penstock_worker_effect_seconds_bucket[1m]))) > ${EFFECT.seconds}`,
      for: '15s',
      summary: `workers: p99 time from acceptance to effect is {{ $value | humanizeDuration }} (threshold ${EFFECT.seconds}s)`,
      meaning: 'The p99 time from acceptance to effect is above 5 s.',
      diagnose: [
        '1. Open the console, or run `penstock status`. If the queue grows, more objects arrive than the workers apply.',
        '2. If the queue does not grow, compare two metrics. `penstock_worker_apply_seconds` is high if transactions are slow: slow disks, a distant network, or large users. `penstock_worker_fence_wait_seconds` is high if workspaces wait at fences.',
      ],
      fix: [
        '- With the queue in Redis and fewer workers than lanes, start more workers. Otherwise use a faster Postgres.',
        '- If many rows are dead (`penstock_table_rows`), let `autovacuum` run more often.',
        '- If most of the traffic is merges, deletes and changes of addresses, use one lane.',
      ],
    },
  },
];
