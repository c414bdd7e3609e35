import type { Command } from 'commander';
import { printedProblem } from '../../checks/registry.ts';
import { rangesOf } from '../../platform/format.ts';
import { rest } from '../../platform/poll.ts';
import { forgetSilent } from '../../resources/operator-actions.ts';
import { type SeenProcess, SILENT_SECONDS, unworkedLanes, workersOf } from '../../store/processes.ts';
import { addVerb, parseCount } from '../command.ts';
import { type FleetNow, watchFleet } from '../doctor/fleet.ts';
import { commandLine, withInstallation } from '../installation.ts';
import { printJson, type Row, table } from '../output.ts';
import { withQueueConnection } from '../queue.ts';

/** Seconds between two screens by default. */
const EVERY = 2;

/** Terminal sequence that moves the cursor to the top left and clears the screen. */
const CLEAR = '\u001b[H\u001b[2J';

export function addStatus(program: Command): void {
  addVerb(program, 'status', {
    sentence: 'Show processes, lanes, rates, dead letters and syncs on one screen.',
    example: 'status --watch',
  })
    .option('--watch [seconds]', `refresh the screen every so many seconds (default: ${EVERY})`, parseCount)
    .action(show);
}

async function show({ watch, json }: { watch?: number | true; json?: boolean }): Promise<void> {
  const leaving = new AbortController();
  const leave = () => leaving.abort();
  process.once('SIGINT', leave);
  try {
    await withInstallation(async (installation) => {
      const { pool } = installation.database;
      const draw = async (read: () => Promise<FleetNow>) => {
        do {
          const now = await read();
          if (json) printJson(documentOf(now));
          else process.stdout.write(`${watch ? CLEAR : ''}${screenOf(now)}`);
          if (watch) await rest((watch === true ? EVERY : watch) * 1000, leaving.signal);
        } while (watch && !leaving.signal.aborted);
      };
      // While the queue is unavailable, everything else is shown.
      let drawn = false;
      const { config } = installation;
      await withQueueConnection(installation, (connection) => {
        drawn = true;
        return draw(watchFleet({ pool, connection, config }));
      }).catch((reason: unknown) => {
        if (drawn) throw reason;
        return draw(watchFleet({ pool, connection: undefined, config }));
      });
    });
  } finally {
    process.off('SIGINT', leave);
  }
}

const rateOf = ({ processes = [] }: FleetNow, name: string) =>
  Math.round(
    processes
      .filter((one) => one.name === name && one.silentSeconds < SILENT_SECONDS)
      .reduce((sum, { objectsPerSecond }) => sum + objectsPerSecond, 0),
  );

const refusedPerSecond = ({ refused }: FleetNow) =>
  Math.round((100 * refused.objects) / refused.seconds) / 100;

const streamsInTrouble = ({ problems, streams = [] }: FleetNow) =>
  streams.filter(({ workspace, name }) =>
    problems.some(({ scope, subject }) => scope === 'stream' && subject === `${name} (${workspace})`),
  );

/** Builds the JSON output of `status`. */
function documentOf(now: FleetNow) {
  const { processes = [], lanes, spread, objects, waitingLetters, refused, loss, syncs, problems } = now;
  const failing = (syncs?.troubled ?? []).filter(({ status }) => status !== 'partial');
  return {
    problems: problems.map(printedProblem),
    processes: processes.map((one) => ({
      ...{ name: one.name, host: one.host, pid: one.pid, version: one.version, address: one.address },
      ...{ lanes: one.lanes, missing: one.missing, objects: one.objects },
      ...{
        objects_per_second: one.objectsPerSecond,
        resident_bytes: one.residentBytes,
        loop_busy: one.loopBusy,
      },
      started_at: one.startedAt.toISOString(),
      ...{ silent_seconds: one.silentSeconds, alive: one.silentSeconds < SILENT_SECONDS },
    })),
    installation_lanes: spread?.lanes ?? null,
    lanes:
      lanes?.map(({ lane, depth, oldestSeconds }, number) => ({
        ...{ lane, depth, oldest_seconds: oldestSeconds },
        worked_by: workersOf(processes, number).map(({ worker, since = null }) => ({
          ...{ host: worker.host, pid: worker.pid, version: worker.version },
          ...{ started_at: worker.startedAt.toISOString(), since },
        })),
      })) ?? null,
    accepted_per_second: rateOf(now, 'web'),
    applied_per_second: rateOf(now, 'worker'),
    objects_applied: objects,
    dead_letters: waitingLetters,
    refused_per_second: refusedPerSecond(now),
    refused_objects: refused.objects,
    refused_seconds: Math.round(refused.seconds),
    losses: loss?.losses ?? 0,
    syncs: {
      unfinished: syncs?.unfinished ?? 0,
      failing: failing.map(({ workspace, integration }) => ({ workspace, integration })),
    },
    streams: streamsInTrouble(now).map(({ workspace, name, lag, failures, lastError, lost }) => ({
      ...{ workspace, name, lag_seconds: lag, failures, last_error: lastError, lost_rows: lost },
    })),
  };
}

/** Formats the screen of `status`; problems come first. */
function screenOf(now: FleetNow): string {
  const { processes = [], lanes, objects, waitingLetters, refused, syncs, problems } = now;
  const failing = (syncs?.troubled ?? []).filter(({ status }) => status !== 'partial').length;
  const rows = processes.map(
    (one): Row => ({
      process: one.name,
      host: one.host,
      pid: one.pid,
      version: one.version,
      state: stateOf(one),
      lanes: rangesOf(one.held?.map(({ lane }) => lane) ?? one.lanes),
      'objects/s': Math.round(one.objectsPerSecond),
      MB: Math.round(one.residentBytes / 1e6),
      'busy %': Math.round(one.loopBusy * 100),
      up: duration((Date.now() - one.startedAt.getTime()) / 1000),
    }),
  );
  const laneRows = (lanes ?? []).map(
    ({ lane, depth, oldestSeconds }, number): Row => ({
      ...{ lane, depth, oldest: duration(oldestSeconds) },
      'worked by': workersOf(processes, number)
        .map(({ worker: { host, pid, version } }) => `${host} ${pid} (${version})`)
        .join(', '),
    }),
  );
  const parts = [
    problems.map(({ sentence }) => `! ${sentence}\n`).join('') || 'All systems normal.\n',
    rows.length > 0 ? table(rows) : 'no processes\n',
    laneRows.length > 0 ? table(laneRows) : '',
    [
      `accepted ${rateOf(now, 'web')}/s, applied ${rateOf(now, 'worker')}/s, ${objects} objects in total`,
      `refused objects ${refusedPerSecond(now)}/s (${refused.objects} within ${Math.ceil(refused.seconds / 60)} min)`,
      `dead letters ${waitingLetters}, syncs under way ${syncs?.unfinished ?? 0}, failing ${failing}`,
      '',
    ].join('\n'),
  ];
  return parts.filter((part) => part !== '').join('\n');
}

function stateOf({ silentSeconds, missing, marks }: SeenProcess): string {
  if (silentSeconds >= SILENT_SECONDS) return `silent for ${duration(silentSeconds)}`;
  if (missing.length > 0) return `without ${missing.join(', ')}`;
  return Object.values(marks ?? {}).some(({ over }) => over) ? 'refuses requests' : 'well';
}

/** Formats seconds as, for example, `3 d`, `4 h`, `5 min` or `6 s`. */
function duration(seconds: number): string {
  const units = [
    [86_400, 'd'],
    [3600, 'h'],
    [60, 'min'],
  ] as const;
  const [size, unit] = units.find(([one]) => seconds >= 2 * one) ?? [1, 's'];
  return `${Math.floor(seconds / size)} ${unit}`;
}

export function addWorkers(program: Command): void {
  const workers = addVerb(program, 'workers', {
    sentence: 'Show the lanes of each worker, since when it has them, and their backlog.',
    example: 'workers',
  }).action(showWorkers);
  // Commander assigns --json to the parent command, so the action reads the global options.
  addVerb(workers, 'forget', {
    sentence:
      'Remove processes of every kind that have sent no heartbeat for 20 s from the list. A process that still runs is back with its next heartbeat.',
    example: 'workers forget',
  }).action((_options, command: Command) => forget(command.optsWithGlobals()));
}

async function forget({ json }: { json?: boolean }): Promise<void> {
  await withInstallation(async ({ database }) => {
    const forgotten = await forgetSilent({ database, actor: commandLine() });
    if (json) printJson({ forgotten: forgotten.map((one) => ({ ...one })) });
    else
      process.stdout.write(
        forgotten.map(({ name, host, pid }) => `removed ${name} ${host} (pid ${pid})\n`).join('') ||
          'every process in the list sends heartbeats\n',
      );
  });
}

async function showWorkers({ json }: { json?: boolean }): Promise<void> {
  await withInstallation(async (installation) => {
    const { pool } = installation.database;
    // While the queue is unavailable, workers are shown without their backlog.
    const { config } = installation;
    const now = await withQueueConnection(installation, (connection) =>
      watchFleet({ pool, connection, config })(),
    ).catch(() => watchFleet({ pool, connection: undefined, config })());
    if (json) printJson(workersDocument(now));
    else process.stdout.write(workersScreen(now));
  });
}

interface WorkedLane {
  lane: number;
  /** ISO 8601; null if the release of the worker does not report it. */
  since: string | null;
  /** Null while the queue is unavailable. */
  depth: number | null;
  oldestSeconds: number | null;
}

interface Working {
  worker: SeenProcess;
  alive: boolean;
  lanes: WorkedLane[];
}

function workingNow({ processes = [], lanes, spread }: FleetNow): Working[] {
  const holders = Array.from({ length: spread?.lanes ?? 0 }, (_, lane) => workersOf(processes, lane));
  return processes
    .filter(({ name }) => name === 'worker')
    .map((worker) => ({
      worker,
      alive: worker.silentSeconds < SILENT_SECONDS,
      lanes: holders.flatMap((laneHolders, lane) => {
        const held = laneHolders.find((one) => one.worker === worker);
        const { depth = null, oldestSeconds = null } = lanes?.[lane] ?? {};
        return held ? [{ lane, since: held.since ?? null, depth, oldestSeconds }] : [];
      }),
    }));
}

const nobodys = ({ processes = [], spread }: FleetNow) => unworkedLanes(processes, spread?.lanes ?? 0);

/** Builds the JSON output of `workers`. */
function workersDocument(now: FleetNow) {
  return {
    installation_lanes: now.spread?.lanes ?? null,
    workers: workingNow(now).map(({ worker, alive, lanes }) => ({
      ...{ host: worker.host, pid: worker.pid, version: worker.version },
      ...{ started_at: worker.startedAt.toISOString(), silent_seconds: worker.silentSeconds, alive },
      spare: alive && lanes.length === 0,
      lanes: lanes.map(({ oldestSeconds, ...lane }) => ({ ...lane, oldest_seconds: oldestSeconds })),
    })),
    lanes_nobody_works: nobodys(now),
  };
}

/** Formats the screen of `workers`; problems come first. */
function workersScreen(now: FleetNow): string {
  const missing = nobodys(now);
  const workers = workingNow(now);
  const troubles = [
    ...(now.lanes === undefined ? ['the queue does not answer'] : []),
    ...(missing.length > 0 ? [`no worker has lanes ${rangesOf(missing)}`] : []),
  ];
  const rows = workers.map(({ worker, alive, lanes }): Row => {
    const latest = lanes
      .map(({ since }) => since ?? '')
      .sort()
      .at(-1);
    return {
      ...{ worker: `${worker.host} ${worker.pid}`, version: worker.version },
      state: alive ? (lanes.length > 0 ? 'works' : 'spare') : `silent for ${duration(worker.silentSeconds)}`,
      lanes: rangesOf(lanes.map(({ lane }) => lane)),
      'unchanged for': latest ? duration(Math.max(0, (Date.now() - Date.parse(latest)) / 1000)) : '',
      depth: lanes.reduce((sum, { depth }) => sum + (depth ?? 0), 0),
      oldest: duration(Math.max(0, ...lanes.map(({ oldestSeconds }) => oldestSeconds ?? 0))),
    };
  });
  return [
    troubles.map((trouble) => `! ${trouble}\n`).join(''),
    rows.length > 0 ? table(rows) : 'no workers\n',
  ]
    .filter((part) => part !== '')
    .join('\n');
}
