import { START_COMMAND } from '../platform/files.ts';
import { grouped } from '../platform/format.ts';
import { whatIsLost } from '../queue/loss.ts';
import { BEAT_SECONDS, type SeenProcess, SILENT_SECONDS, unworkedLanes } from '../store/processes.ts';
import type { FleetState } from './fleet.ts';
import { count, duration } from './layout.ts';
import {
  connectionsUsed,
  diskFull,
  largeProcess,
  nearlyRefusing,
  redisCannotWrite,
  refusedOtherwise,
  refusing,
  releasesDiffer,
  releasesOf,
  storesSlow,
  type Verdict,
} from './shortages.ts';

/** What was found at one look. */
export interface Findings
  extends Pick<
    FleetState,
    'missing' | 'lanes' | 'processes' | 'failingSyncs' | 'postgres' | 'redis' | 'disk' | 'loss'
  > {
  deadLetters: number;
}

/** Seconds for which an envelope waits at most while all is well. */
const LATE_SECONDS = 10;

/**
 * The gravest first: whatever stands behind one may be its effect. What stops now comes before what is lost already,
 * of which a line on every page tells as long as nobody has confirmed it.
 */
const causes: ((found: Findings) => Verdict | undefined)[] = [
  ...[diskFull, storesAway, takesNoRows, redisCannotWrite],
  ...[stuck, partsMissing, refusing, connectionsUsed, lost],
  ...[nearlyRefusing, storesSlow, refusedOtherwise, largeProcess, releasesDiffer, forPeople],
];

/** The gravest cause that there is; one that stops or loses something before all others. */
export function diagnose(found: Findings): Verdict {
  const told = causes.flatMap((cause) => cause(found) ?? []);
  return (
    told.find(({ tone }) => tone === 'bad') ??
    told[0] ?? { tone: 'good', sentence: 'All is well: accepted objects take effect within seconds.' }
  );
}

const stores: Record<string, [sentence: string, advice: string]> = {
  postgres: [
    'Postgres does not answer: accepted objects do not take effect, and most pages are unavailable.',
    'Start Postgres, or correct DATABASE_URL. Every process then resumes by itself.',
  ],
  migrations: [
    'Postgres does not have the tables of this release.',
    'Run the release step: penstock migrate. Every process then resumes by itself.',
  ],
  redis: [
    'Redis does not answer: requests are refused with 503, and accepted objects do not take effect.',
    'Start Redis, or correct REDIS_URL. Every process then resumes by itself.',
  ],
  producer: [
    'The console cannot add objects to the queue. Replays are refused.',
    'The console retries by itself. Its log has the cause.',
  ],
  queue: [
    'The queue in Postgres does not answer.',
    'If it has no tables, run the release step: penstock migrate.',
  ],
};

function storesAway({ missing, lanes, processes }: Findings): Verdict | undefined {
  const name =
    missing[0] ?? (processes === undefined ? 'postgres' : lanes === undefined ? 'queue' : undefined);
  if (name === undefined) return undefined;
  const [sentence, advice] = stores[name] ?? [`This process cannot use ${name}.`, 'Its log has the cause.'];
  return { tone: 'bad', sentence, advice };
}

/** Postgres answers, and yet writes nothing. */
function takesNoRows({ processes = [], postgres }: Findings): Verdict | undefined {
  if (postgres?.readOnly)
    return {
      tone: 'bad',
      sentence: 'Postgres is read-only: accepted objects do not take effect.',
      advice:
        'The server is a standby, or default_transaction_read_only is on. Set DATABASE_URL to the primary.',
    };
  // A board shows this: where none of them could write its row, the store is the cause.
  const boards = processes.filter(({ name }) => name === 'board');
  if (boards.length === 0 || !boards.every(isQuiet)) return undefined;
  const seconds = Math.min(...boards.map(({ silentSeconds }) => silentSeconds));
  return {
    tone: 'bad',
    sentence: `Postgres is reachable but rejects writes (last heartbeat written ${duration(seconds)} ago).`,
    advice:
      'Check for a full disk, or a lock on the table processes. The log of Postgres has the cause. Every process then resumes by itself.',
  };
}

/** What the queue has lost. */
function lost({ loss }: Findings): Verdict | undefined {
  if (!loss) return undefined;
  return {
    tone: 'bad',
    sentence: `${whatIsLost(loss)}.`,
    advice: `Ask clients to send the requests of that time again, or send them from your records. Then run: penstock queue confirm-loss ${loss.latest}.`,
  };
}

/** Who has missed two beats while something waits for it is told of before it counts as gone. */
const MISSED_SECONDS = 2 * BEAT_SECONDS + 2;

const isSilent = ({ silentSeconds }: SeenProcess) => silentSeconds > SILENT_SECONDS;

const isQuiet = ({ silentSeconds }: SeenProcess) => silentSeconds > MISSED_SECONDS;

const nameOf = ({ name, host, pid }: SeenProcess) => `${name} ${host} (pid ${pid})`;

/** `lane 3`, `lanes 0 to 3`, `lanes 0, 2 and 5`. */
export function lanesIn(numbers: number[]): string {
  const [first] = numbers;
  const last = numbers.at(-1);
  if (numbers.length === 1) return `lane ${first}`;
  if (numbers.length > 2 && last! - first! === numbers.length - 1) return `lanes ${first} to ${last}`;
  return `lanes ${numbers.slice(0, -1).join(', ')} and ${last}`;
}

/** Lanes in which something waits for too long, and why. */
function stuck(found: Findings): Verdict | undefined {
  const { lanes = [], processes = [] } = found;
  const late = lanes
    .map(({ depth, oldestSeconds }, lane) => ({ lane, depth, oldestSeconds }))
    .filter(({ depth, oldestSeconds }) => depth > 0 && oldestSeconds > LATE_SECONDS);
  if (late.length === 0) return undefined;
  const waiting = late.reduce((sum, { depth }) => sum + depth, 0);
  const oldest = Math.max(...late.map(({ oldestSeconds }) => oldestSeconds));
  const where = lanesIn(late.map(({ lane }) => lane));
  const what = `${count(waiting, 'job')} ${waiting === 1 ? 'waits' : 'wait'} in ${where}, the oldest for ${duration(oldest)}`;
  const workers = processes.filter(({ name }) => name === 'worker');
  const [silent] = workers.filter(isQuiet).sort((one, other) => one.silentSeconds - other.silentSeconds);
  const living = workers.filter((worker) => !isQuiet(worker));
  if (living.length === 0) {
    if (!silent)
      return {
        tone: 'bad',
        sentence: `No worker runs: ${what}.`,
        advice: `Start one: ${START_COMMAND}, or “worker” in the Procfile.`,
      };
    const only =
      workers.length === 1
        ? 'The only worker'
        : `None of ${workers.length} workers has sent a heartbeat; the last one,`;
    return {
      tone: 'bad',
      sentence: `${only} ${silent.host} (pid ${silent.pid}) has sent no heartbeat for ${duration(silent.silentSeconds)}: ${what}.`,
      advice:
        'The worker is stopped, frozen, or cannot reach Postgres. Restart it, or start another worker, which takes over its lanes within seconds. Nothing is lost or applied twice.',
    };
  }
  if (silent)
    return {
      tone: 'bad',
      sentence: `Worker ${silent.host} (pid ${silent.pid}) has sent no heartbeat for ${duration(silent.silentSeconds)}, and ${what}.`,
      advice:
        'The worker may still have these lanes. Restart it; other workers take over lanes that are free.',
    };
  const rate = living.reduce((sum, { objectsPerSecond }) => sum + objectsPerSecond, 0);
  const nobodys = new Set(unworkedLanes(processes, lanes.length));
  const left = late.filter(({ lane }) => nobodys.has(lane)).map(({ lane }) => lane);
  if (left.length > 0)
    return {
      tone: 'bad',
      sentence: `No worker has ${lanesIn(left)} although ${count(living.length, 'worker')} ${living.length === 1 ? 'runs' : 'run'}: ${what}.`,
      advice:
        'Workers take such a lane within five seconds. If this state lasts, check in their logs whether the lanes could be redistributed.',
    };
  const standing = late.filter(({ lane }) => !living.some((worker) => worker.lanes.includes(lane)));
  if (standing.length > 0)
    return {
      tone: 'bad',
      sentence: `${standing.length === 1 ? 'A lane makes' : 'Lanes make'} no progress although ${count(living.length, 'worker')} ${living.length === 1 ? 'runs' : 'run'}: ${what}.`,
      advice:
        releasesOf(found).length > 1
          ? 'Two releases run: if the first job was written by the later one, only workers of that release can read it. Finish the upgrade.'
          : 'The log of the workers has the error of the first job. “Requests” shows which jobs are in front of a request.',
    };
  return {
    tone: 'warn',
    sentence: `The workers are behind: ${what}. They apply ${grouped(Math.round(rate))} objects/s.`,
    advice: 'If the number does not fall, start another worker, or find the sender under “Queues”.',
  };
}

/** Processes that there should be, or that lack something. */
function partsMissing({ processes = [] }: Findings): Verdict | undefined {
  const living = processes.filter((one) => !isSilent(one));
  for (const [name, effect] of [
    ['web', 'requests are not answered'],
    ['worker', 'accepted objects wait'],
  ] as const)
    if (!living.some((one) => one.name === name))
      return {
        tone: 'bad',
        sentence: `No ${name} process has sent a heartbeat: ${effect}.`,
        advice: `Start one: ${START_COMMAND}, or “${name}” in the Procfile.`,
      };
  const lacking = living.find(({ missing }) => missing.length > 0);
  if (lacking)
    return {
      tone: 'bad',
      sentence: `${nameOf(lacking)} cannot reach ${lacking.missing.join(' and ')}.`,
      advice:
        'Other processes can reach it. Check the settings of this process and its network. The process resumes by itself.',
    };
  const silent = processes.find(isSilent);
  if (silent)
    return {
      tone: 'warn',
      sentence: `${nameOf(silent)} has sent no heartbeat for ${duration(silent.silentSeconds)}; other processes do its work.`,
      advice:
        'If you removed the process on purpose, this message disappears an hour after its last heartbeat. Otherwise restart it.',
    };
  return undefined;
}

function forPeople({ deadLetters, failingSyncs }: Findings): Verdict | undefined {
  if (deadLetters > 0)
    return {
      tone: 'warn',
      sentence: `${count(deadLetters, 'dead letter')} ${deadLetters === 1 ? 'waits' : 'wait'} for an operator; everything else is well.`,
      advice: 'Open “Dead letters” for the reasons, then replay, correct or discard them.',
    };
  if (failingSyncs > 0)
    return {
      tone: 'warn',
      sentence: `The last run of ${count(failingSyncs, 'integration')} ended in an error; everything else is well.`,
      advice: 'Open “Syncs” for the reasons.',
    };
  return undefined;
}
