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
    told[0] ?? { tone: 'good', sentence: 'All is well: what is accepted takes effect within seconds.' }
  );
}

const stores: Record<string, [sentence: string, advice: string]> = {
  postgres: [
    'Postgres does not answer: nothing that is accepted takes effect, and little can be shown.',
    'Bring it back; every process goes on by itself then. DATABASE_URL says where it is looked for.',
  ],
  migrations: [
    'Postgres lacks tables of this release.',
    'Run the release step: penstock migrate. Every process goes on by itself then.',
  ],
  redis: [
    'Redis does not answer: requests are refused with 503, and nothing is applied.',
    'Bring it back; every process goes on by itself then. REDIS_URL says where it is looked for.',
  ],
  producer: [
    'The console cannot add objects to the queue, so a replay is refused.',
    'It tries again and continues by itself. The log of the console has the cause.',
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
  const [sentence, advice] = stores[name] ?? [`This process lacks ${name}.`, 'Its log says why.'];
  return { tone: 'bad', sentence, advice };
}

/** Postgres answers, and yet writes nothing. */
function takesNoRows({ processes = [], postgres }: Findings): Verdict | undefined {
  if (postgres?.readOnly)
    return {
      tone: 'bad',
      sentence: 'Postgres only reads: nothing that is accepted takes effect.',
      advice:
        'It is a standby, or default_transaction_read_only is on. DATABASE_URL has to lead to the one that writes.',
    };
  // A board shows this: where none of them could write its row, the store is the cause.
  const boards = processes.filter(({ name }) => name === 'board');
  if (boards.length === 0 || !boards.every(isQuiet)) return undefined;
  const seconds = Math.min(...boards.map(({ silentSeconds }) => silentSeconds));
  return {
    tone: 'bad',
    sentence: `Postgres answers and takes no rows: not even this process could write that it is there for ${duration(seconds)}.`,
    advice:
      'Its disk may be full, or a lock is held on the table processes: its log says more. Every process goes on by itself.',
  };
}

/** What the queue has lost. */
function lost({ loss }: Findings): Verdict | undefined {
  if (!loss) return undefined;
  return {
    tone: 'bad',
    sentence: `${whatIsLost(loss)}.`,
    advice: `Let clients send that time again, or take it from your records; then run: penstock queue confirm-loss ${loss.latest}.`,
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
        advice: `Start one: ${START_COMMAND}, or the line “worker” of the Procfile.`,
      };
    const only =
      workers.length === 1 ? 'The only worker' : `None of ${workers.length} workers is heard; the last,`;
    return {
      tone: 'bad',
      sentence: `${only} ${silent.host} (pid ${silent.pid}) has been silent for ${duration(silent.silentSeconds)}: ${what}.`,
      advice:
        'It is stopped, frozen, or cut off from Postgres. Restart it, or start another: its lanes are taken over within seconds, and nothing is lost or done twice.',
    };
  }
  if (silent)
    return {
      tone: 'bad',
      sentence: `Worker ${silent.host} (pid ${silent.pid}) has been silent for ${duration(silent.silentSeconds)}, and ${what}.`,
      advice: 'It may hold these lanes. Restart it; until then the others take over what they can.',
    };
  const rate = living.reduce((sum, { objectsPerSecond }) => sum + objectsPerSecond, 0);
  const nobodys = new Set(unworkedLanes(processes, lanes.length));
  const left = late.filter(({ lane }) => nobodys.has(lane)).map(({ lane }) => lane);
  if (left.length > 0)
    return {
      tone: 'bad',
      sentence: `Nobody works ${lanesIn(left)} though ${count(living.length, 'worker')} ${living.length === 1 ? 'runs' : 'run'}: ${what}.`,
      advice:
        'Workers take such a lane within five seconds. If this lasts, their logs say whether Redis lets them share the lanes out.',
    };
  const standing = late.filter(({ lane }) => !living.some((worker) => worker.lanes.includes(lane)));
  if (standing.length > 0)
    return {
      tone: 'bad',
      sentence: `${standing.length === 1 ? 'A lane stands' : 'Lanes stand'} still though ${count(living.length, 'worker')} ${living.length === 1 ? 'runs' : 'run'}: ${what}.`,
      advice:
        releasesOf(found).length > 1
          ? 'Two releases run: if the first envelope is of the later one, only its workers read it. Go on with the upgrade.'
          : 'The log of the workers says what the first envelope fails with. “Requests” shows what stands in front of a request.',
    };
  return {
    tone: 'warn',
    sentence: `The workers are behind: ${what}. They apply ${grouped(Math.round(rate))} objects/s.`,
    advice: 'If it does not shrink, start another worker, or find who sends so much under “Queues”.',
  };
}

/** Processes that there should be, or that lack something. */
function partsMissing({ processes = [] }: Findings): Verdict | undefined {
  const living = processes.filter((one) => !isSilent(one));
  for (const [name, effect] of [
    ['web', 'nothing is accepted'],
    ['worker', 'what is accepted waits'],
  ] as const)
    if (!living.some((one) => one.name === name))
      return {
        tone: 'bad',
        sentence: `No ${name} process is heard: ${effect}.`,
        advice: `Start one: ${START_COMMAND}, or the line “${name}” of the Procfile.`,
      };
  const lacking = living.find(({ missing }) => missing.length > 0);
  if (lacking)
    return {
      tone: 'bad',
      sentence: `${nameOf(lacking)} does not reach ${lacking.missing.join(' and ')}.`,
      advice:
        'It waits, and goes on by itself. Its settings or the network between them are the cause, as others reach it.',
    };
  const silent = processes.find(isSilent);
  if (silent)
    return {
      tone: 'warn',
      sentence: `${nameOf(silent)} has been silent for ${duration(silent.silentSeconds)}; others do its work.`,
      advice:
        'If it was taken away on purpose, this ends by itself an hour after it was last heard. Otherwise restart it.',
    };
  return undefined;
}

function forPeople({ deadLetters, failingSyncs }: Findings): Verdict | undefined {
  if (deadLetters > 0)
    return {
      tone: 'warn',
      sentence: `${count(deadLetters, 'dead letter')} ${deadLetters === 1 ? 'waits' : 'wait'} for a person; everything else is well.`,
      advice: 'See their reasons under “Dead letters”, and replay, mend or discard them.',
    };
  if (failingSyncs > 0)
    return {
      tone: 'warn',
      sentence: `The last run of ${count(failingSyncs, 'integration')} ended in an error; everything else is well.`,
      advice: 'See why under “Syncs”.',
    };
  return undefined;
}
