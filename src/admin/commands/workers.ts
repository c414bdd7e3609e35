import type { Command } from 'commander';
import { rangesOf } from '../../platform/numbers.ts';
import { type SeenProcess, SILENT_SECONDS, unworkedLanes, workersOf } from '../../store/processes.ts';
import { addVerb } from '../command.ts';
import { type FleetNow, lookAtFleet } from '../doctor/fleet.ts';
import { withInstallation } from '../lookup.ts';
import { printJson, type Row, table } from '../output.ts';
import { withQueueConnection } from '../queue.ts';
import { duration } from './status.ts';

export function addWorkers(program: Command): void {
  addVerb(program, 'workers', {
    sentence: 'Show which worker works which lanes, since when, and how far behind each is.',
    example: 'workers',
  }).action(show);
}

async function show({ json }: { json?: boolean }): Promise<void> {
  await withInstallation(async (installation) => {
    const { pool } = installation.database;
    // Where the queue does not answer, the workers are shown without what waits.
    const now = await withQueueConnection(installation, (connection) => lookAtFleet(pool, connection)).catch(
      () => lookAtFleet(pool, undefined),
    );
    if (json) printJson(documentOf(now));
    else process.stdout.write(screenOf(now));
  });
}

interface WorkedLane {
  lane: number;
  /** ISO 8601; null: a worker of a release that does not say so. */
  since: string | null;
  /** Null: the queue does not answer. */
  depth: number | null;
  oldestSeconds: number | null;
}

interface Working {
  worker: SeenProcess;
  alive: boolean;
  lanes: WorkedLane[];
}

function workingNow({ processes, lanes, installationLanes }: FleetNow): Working[] {
  const holders = Array.from({ length: installationLanes ?? 0 }, (_, lane) => workersOf(processes, lane));
  return processes
    .filter(({ name }) => name === 'worker')
    .map((worker) => ({
      worker,
      alive: worker.silentSeconds < SILENT_SECONDS,
      lanes: holders.flatMap((found, lane) => {
        const held = found.find((one) => one.worker === worker);
        const { depth = null, oldestSeconds = null } = lanes?.[lane] ?? {};
        return held ? [{ lane, since: held.since ?? null, depth, oldestSeconds }] : [];
      }),
    }));
}

const nobodys = ({ processes, installationLanes }: FleetNow) =>
  unworkedLanes(processes, installationLanes ?? 0);

/** For scripts. */
function documentOf(now: FleetNow) {
  return {
    installation_lanes: now.installationLanes,
    workers: workingNow(now).map(({ worker, alive, lanes }) => ({
      ...{ host: worker.host, pid: worker.pid, version: worker.version },
      ...{ started_at: worker.startedAt.toISOString(), silent_seconds: worker.silentSeconds, alive },
      spare: alive && lanes.length === 0,
      lanes: lanes.map(({ oldestSeconds, ...lane }) => ({ ...lane, oldest_seconds: oldestSeconds })),
    })),
    lanes_nobody_works: nobodys(now),
  };
}

/** For people: what is wrong stands first. */
function screenOf(now: FleetNow): string {
  const missing = nobodys(now);
  const workers = workingNow(now);
  const troubles = [
    ...(now.lanes === null ? ['the queue does not answer'] : []),
    ...(missing.length > 0 ? [`nobody works lanes ${rangesOf(missing)}`] : []),
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
