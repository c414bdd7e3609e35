import type { QueueConnection } from '../../queue/connection.ts';
import { type LaneNow, lookAtLanes } from '../../queue/depth.ts';
import { type LayoutSettings, laneCount, laneName } from '../../queue/lanes.ts';
import { READS, versionOf } from '../../queue/wire.ts';
import { readTotals } from '../../store/counters.ts';
import type { Pool } from '../../store/database.ts';
import { readSpread } from '../../store/installation.ts';
import { listProcesses, type SeenProcess, SILENT_SECONDS, unworkedLanes } from '../../store/processes.ts';
import { listLosses } from '../../store/queue-losses.ts';
import { countRefused } from '../../store/refused-objects.ts';
import { listDestinations } from '../../store/stream-destinations.ts';
import { readSyncState } from '../../store/sync-lists.ts';
import { error, type Finding, ok, warning } from './machine.ts';

/** The fleet at one moment. */
export interface FleetNow {
  processes: SeenProcess[];
  /** Null: no process was ever started. */
  installationLanes: number | null;
  /** Sets of them; null likewise. */
  installationShards: number | null;
  /** Null: the queue does not answer. */
  lanes: LaneNow[] | null;
  /** Objects that took effect since the installation was made. */
  objects: number;
  /** Those that wait for a person. */
  deadLetters: number;
  /** Objects that web refused in this hour and the one before, and how many seconds that is. */
  refused: { objects: number; seconds: number };
  /** Of the queue, unconfirmed. */
  losses: number;
  syncs: { unfinished: number; failing: { workspace: string; integration: string }[] };
  streams: StreamTrouble[];
}

/** Losses that are looked at, the latest. */
const MOST_LOSSES = 100;

/**
 * Looks at the fleet once.
 *
 * @param connection of the queue; undefined while it cannot be reached
 * @throws when Postgres does not answer
 */
export async function lookAtFleet(pool: Pool, connection: QueueConnection | undefined): Promise<FleetNow> {
  const { lanes: installationLanes = null, shards: installationShards = null } =
    (await readSpread(pool)) ?? {};
  const [processes, totals, refused, state, losses, streams, lanes] = await Promise.all([
    listProcesses(pool),
    readTotals(pool),
    countRefused(pool),
    readSyncState(pool),
    listLosses(pool, MOST_LOSSES),
    streamsInTrouble(pool),
    connection && installationLanes !== null
      ? lookAtLanes(connection.laneStore, installationLanes).catch(() => null)
      : null,
  ]);
  return {
    ...{ processes, installationLanes, installationShards, lanes, objects: totals.objects },
    deadLetters: totals.waitingDeadLetters,
    refused,
    losses: losses.filter(({ confirmedAt }) => confirmedAt === null).length,
    syncs: { unfinished: state.unfinished, failing: state.failingNames },
    streams,
  };
}

/** Seconds from which on the oldest envelope of a lane is a finding. */
const LONG_WAIT = 30;

/** The same where no living worker has applied anything of the lane for ten seconds, by its last heartbeat. */
const UNWORKED_WAIT = 20;

/** What a fleet looks like from outside: who is there, what waits, and what a person has to see. */
export function judgeFleet(fleet: FleetNow, settings: LayoutSettings): Finding[] {
  return [
    ...judgeProcesses(fleet.processes),
    ...judgeLanes(fleet, settings),
    ...judgeWaiting(fleet),
    ...judgeStreams(fleet.streams),
  ];
}

function judgeProcesses(processes: SeenProcess[]): Finding[] {
  const alive = processes.filter(({ silentSeconds }) => silentSeconds < SILENT_SECONDS);
  const findings: Finding[] = [];
  const nameOf = ({ name, host, pid }: SeenProcess) => `${name} (${pid} on ${host})`;
  for (const name of ['web', 'worker'] as const)
    if (!alive.some((one) => one.name === name))
      findings.push(error('processes', `no ${name} runs`, `Start one: see ${name} in the Procfile.`));
  for (const one of processes.filter(({ silentSeconds }) => silentSeconds >= SILENT_SECONDS))
    findings.push(
      warning(
        'processes',
        `${nameOf(one)} sent its last heartbeat ${Math.round(one.silentSeconds)} s ago`,
        'The process was killed, is frozen, or cannot reach Postgres. Read its last log line. It is removed from the list after an hour.',
      ),
    );
  for (const one of alive.filter(({ missing }) => missing.length > 0))
    findings.push(
      error(
        'processes',
        `${nameOf(one)} cannot use ${one.missing.join(', ')}`,
        'See PenstockDependencyAway in docs/runbook.md.',
      ),
    );
  const versions = [...new Set(alive.map(({ version }) => version))];
  if (versions.length > 1)
    findings.push(
      warning(
        'processes',
        `releases ${versions.sort().join(' and ')} run together`,
        'Finish the upgrade, or revert it: see docs/upgrade.md.',
      ),
    );
  return findings.length > 0
    ? findings
    : [ok('processes', `${alive.length} processes run, all of one release`)];
}

function judgeLanes(fleet: FleetNow, settings: LayoutSettings): Finding[] {
  const { lanes, installationLanes, processes } = fleet;
  const findings = judgeSpread(fleet, settings);
  const away = [...new Set((lanes ?? []).filter((one) => one.away).map(({ shard = 0 }) => shard))];
  if (away.length > 0)
    findings.push(
      error(
        'lanes',
        `${away.length === 1 ? 'shard' : 'shards'} ${away.join(', ')} of the lanes cannot be reached`,
        'Requests of its workspaces are answered with 503; other workspaces continue. Restore the Redis primary of the shard.',
      ),
    );
  const nobodys = new Set(unworkedLanes(processes, installationLanes ?? 0).map(laneName));
  const workers = processes.filter((one) => one.name === 'worker' && one.silentSeconds < SILENT_SECONDS);
  const worked = new Set(workers.flatMap((worker) => worker.lanes.map(laneName)));
  for (const { lane, oldestSeconds, depth } of lanes ?? []) {
    if (oldestSeconds <= (worked.has(lane) ? LONG_WAIT : UNWORKED_WAIT)) continue;
    const age = `the oldest of ${depth} jobs of ${lane} has waited for ${Math.round(oldestSeconds)} s`;
    const unworked = nobodys.has(lane)
      ? ', and the lane has no worker'
      : worked.has(lane)
        ? ''
        : ', and no worker has applied a job of this lane for 10 s';
    findings.push(error('lanes', `${age}${unworked}`, 'See PenstockLaneStuck in docs/runbook.md.'));
  }
  // That there is none at all is said of the processes.
  if (workers.length > 0 && nobodys.size > 0 && findings.length === 0)
    findings.push(
      warning(
        'lanes',
        `no worker has ${[...nobodys].join(', ')}`,
        'Workers take such a lane within five seconds. Run the check again; if it fails again, read the logs of the workers.',
      ),
    );
  return findings.length > 0 ? findings : [ok('lanes', 'no job has waited long in any lane')];
}

function judgeSpread(fleet: FleetNow, settings: LayoutSettings): Finding[] {
  const { installationLanes, installationShards } = fleet;
  const { LANES, SHARDS = 1 } = settings;
  if (installationLanes === null || installationShards === null) return [];
  const lanes = installationLanes / installationShards;
  if (installationShards !== SHARDS)
    return [
      error(
        'lanes',
        `SHARDS is ${SHARDS} here, and the installation has ${installationShards}`,
        `Set SHARDS=${installationShards}, or change the installation with penstock queue set-lanes ${LANES} --shards ${SHARDS}.`,
      ),
    ];
  if (installationLanes === laneCount(settings)) return [];
  return [
    error(
      'lanes',
      `LANES is ${LANES} here, and the installation has ${lanes}`,
      `Set LANES=${lanes}, or change the installation with penstock queue set-lanes ${LANES}.`,
    ),
  ];
}

/**
 * Whether each lane begins with something that workers of this release read.
 * @throws when the queue does not answer
 */
export async function checkEnvelopes({ laneStore }: QueueConnection, lanes: number): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (let lane = 0; lane < lanes; lane++) {
    const [first] = await laneStore.read(lane, await laneStore.head(lane, 1));
    const version = versionOf(first?.data);
    if (version > READS)
      findings.push(
        error(
          'envelopes',
          `${laneName(lane)} waits for a worker of a later release: version ${version} comes next, this one reads ${READS}`,
          'Start workers of the release that wrote it; see docs/upgrade.md.',
        ),
      );
  }
  return findings.length > 0 ? findings : [ok('envelopes', 'workers of this release can read the next jobs')];
}

function judgeWaiting({ deadLetters, losses, syncs }: FleetNow): Finding[] {
  const findings: Finding[] = [];
  if (losses > 0)
    findings.push(
      error('queue', `Redis lost accepted objects ${losses} times`, 'See penstock queue losses.'),
    );
  if (deadLetters > 0)
    findings.push(
      warning('dead letters', `${deadLetters} wait for an operator`, 'See penstock dead-letters list.'),
    );
  for (const { workspace, integration } of syncs.failing)
    findings.push(
      warning(
        'syncs',
        `the last run of ${integration} (${workspace}) failed`,
        'See penstock integrations logs.',
      ),
    );
  return findings;
}

/** A destination of streams that a person has to look at. */
interface StreamTrouble {
  workspace: string;
  name: string;
  /** Seconds since the oldest thing that it has not got took effect. */
  lag: number;
  /** Vain tries in a row. */
  failures: number;
  lastError: string | null;
  /** Transactions that were trimmed before it got them. */
  lost: number;
}

/** Destinations that are looked at, the oldest. */
const MOST_LISTED = 200;

/** Seconds: as PenstockStreamLags has it. */
const FAR_BEHIND = 300;

/** Those that fail, are far behind or have lost something; one that a person has paused is none of them. */
async function streamsInTrouble(pool: Pool): Promise<StreamTrouble[]> {
  const all = await listDestinations(pool, { limit: MOST_LISTED });
  return all
    .filter(({ lost, state, failures, lag, gatherMs }) => {
      if (lost > 0) return true;
      return state === 'active' && (failures > 0 || lag > FAR_BEHIND + gatherMs / 1000);
    })
    .map(({ workspace, name, lag, failures, lastError, lost }) => ({
      ...{ workspace, name, lag, failures, lastError, lost },
    }));
}

/** One finding for each, the gravest that it has. */
export function judgeStreams(troubles: StreamTrouble[]): Finding[] {
  return troubles.map(({ workspace, name, lag, failures, lastError, lost }) => {
    const stream = `the stream ${name} (${workspace})`;
    if (lost > 0)
      return error(
        'streams',
        `${stream} did not receive ${lost} transactions, which the log no longer has`,
        'See PenstockStreamLost in docs/runbook.md.',
      );
    const behind = `${Math.round(lag)} s behind`;
    if (failures > 0)
      return warning(
        'streams',
        `${stream} has failed ${failures} times in a row and is ${behind}: ${lastError ?? 'unknown'}`,
        'Fix the destination, then run penstock streams resume, which retries immediately.',
      );
    return warning(
      'streams',
      `${stream} is ${behind}, and its destination accepts messages`,
      'A sync process is throttled while the machine has no idle CPU. See penstock_stream_yielded_seconds_total, STREAM_YIELD_SECONDS and PenstockStreamLags in docs/runbook.md.',
    );
  });
}
