import { grouped } from '../platform/format.ts';
import type { MarkLevel } from '../store/processes.ts';
import { type FleetState, living } from './fleet.ts';
import { duration } from './layout.ts';

/** What is wrong, and what to do about it; `bad`: something is not accepted, not applied, or lost. */
export interface Verdict {
  tone: 'good' | 'warn' | 'bad';
  sentence: string;
  /** Absent: nothing is to be done. */
  advice?: string;
}

type Found = Partial<Pick<FleetState, 'processes' | 'postgres' | 'redis' | 'disk'>>;

const MB = 1024 * 1024;
const GB = 1024 * MB;

/** What part of a disk is free when somebody should look after it. */
export const LOW = 0.05;

/** Free bytes with which a Postgres can hardly write. */
const FULL_BYTES = 256 * MB;

/** What part of a mark, or of the connections, is used when it is told of. */
const NEAR = 0.9;

/** Connections that Postgres keeps for its own administrators unless told. */
const RESERVED = 3;

/** Milliseconds for one answer of a store; it is below ten where all is well. */
const SLOW_MS = 250;

/** Seconds of a replica, and bytes of a process, from which the alerts are raised, too. */
const LAG_SECONDS = 30;
const LARGE_BYTES = 1.5e9;

/** A figure of a mark, as a person reads it. */
export const amount = (value: number, unit: string) =>
  unit === 'bytes'
    ? `${grouped(Math.round(value / MB))} MB`
    : `${grouped(Math.round(value * 10) / 10)} ${unit === 'percent' ? '%' : unit}`;

const tooMuch =
  'Web accepts objects faster than the queue stores them. Check the latency of the stores below.';
const slowSenders =
  'Too many requests arrive at once, or clients send slowly. Start another web process, or limit the connections in your proxy.';

/** What to do about a mark, by its name. */
const remedies: Record<string, string> = {
  queue_depth:
    'Objects arrive faster than they are applied. Start another worker, or find the sender under “Workspaces”.',
  redis_memory: 'Start another worker, raise maxmemory, or remove other data from this Redis.',
  event_loop_lag: 'The process is overloaded. Start another web process.',
  pending_objects: tooMuch,
  pending_bytes: tooMuch,
  reading_bytes: slowSenders,
  small_bodies_bytes: slowSenders,
  response_bytes:
    'Clients request large responses and do not read them. Find the workspace under “Workspaces”, or raise MAX_RESPONSE_BYTES.',
};

/** The marks of web for which something holds, the fullest first, and by how many of its processes. */
function marksOf({ processes = [] }: Found, holds: (level: MarkLevel) => boolean) {
  const web = living(processes, 'web');
  const told = web.map(({ marks }) => Object.entries(marks ?? {}).filter(([, level]) => holds(level)));
  const [fullest] = told.flat().sort(([, one], [, other]) => other.value / other.mark - one.value / one.mark);
  if (!fullest) return undefined;
  const [name, { value, mark, unit }] = fullest;
  return {
    ...{ name, all: web.length, having: told.filter((marks) => marks.length > 0).length },
    what: `${name} is ${amount(value, unit)} (limit ${amount(mark, unit)})`,
  };
}

/** Web answers 503 for one of its marks. */
export function refusing(found: Found): Verdict | undefined {
  const over = marksOf(found, (level) => level.over);
  if (!over) return undefined;
  const { name, what, all, having } = over;
  const who =
    all === 1 ? 'Web refuses' : `${having} of ${all} web processes ${having === 1 ? 'refuses' : 'refuse'}`;
  return {
    tone: having === all ? 'bad' : 'warn',
    sentence: `${who} requests with 503: ${what}.`,
    advice: `${remedies[name] ?? 'The log of web has the cause.'} Requests are accepted again when the value has fallen to 90 % of the limit.`,
  };
}

/** The lag of a loop comes and goes; some of the others are never passed, since who finds no room waits. */
export function nearlyRefusing(found: Found): Verdict | undefined {
  const near = marksOf(found, ({ value, mark, unit }) => unit !== 'ms' && value >= mark * NEAR);
  if (!near) return undefined;
  return {
    tone: 'warn',
    sentence: `Web is about to refuse requests: ${near.what}.`,
    advice: remedies[near.name] ?? 'The log of web has the cause.',
  };
}

/** What web refuses for another reason than its marks. */
export function refusedOtherwise({ processes = [] }: Found): Verdict | undefined {
  const rate = living(processes, 'web').reduce((sum, { refusedPerSecond }) => sum + refusedPerSecond, 0);
  if (rate === 0) return undefined;
  return {
    tone: 'warn',
    sentence: `Web refuses ${amount(Math.max(0.1, rate), 'requests/s')} with 429 or 503, although no load limit is exceeded.`,
    advice:
      'Usually a workspace exceeds its rate limit. Its page under “Workspaces” shows the limit, and the log of web has each response with its key.',
  };
}

const gigabytes = (bytes: number) => `${(bytes / GB).toFixed(1)} GB`;

/** Of DATA_DIR. */
export function diskFull({ disk }: Found): Verdict | undefined {
  if (!disk || disk.freeBytes >= disk.sizeBytes * LOW) return undefined;
  const isFull = disk.freeBytes < FULL_BYTES;
  return {
    tone: isFull ? 'bad' : 'warn',
    sentence: `The disk of DATA_DIR is ${isFull ? 'full' : 'nearly full'}: ${gigabytes(disk.freeBytes)} of ${gigabytes(disk.sizeBytes)} are free.`,
    advice:
      'Free space on the disk. Until then requests can be answered with 503; every process then resumes by itself.',
  };
}

/** Redis cannot write its file. */
export function redisCannotWrite({ redis }: Found): Verdict | undefined {
  if (!redis || redis.writes) return undefined;
  return {
    tone: 'bad',
    sentence:
      'Redis could not write its file: Redis can refuse new objects, and a crash would lose accepted objects.',
    advice:
      'Usually the disk of Redis is full: free space there. The log of Redis has the cause. Redis recovers by itself.',
  };
}

/** Of all who use this Postgres. */
export function connectionsUsed({ postgres }: Found): Verdict | undefined {
  if (!postgres || postgres.most === 0 || postgres.used < postgres.most * NEAR) return undefined;
  const areUsedUp = postgres.used >= postgres.most - RESERVED;
  return {
    tone: areUsedUp ? 'bad' : 'warn',
    sentence: `The connections of Postgres are ${areUsedUp ? '' : 'nearly '}used up: ${grouped(postgres.used)} of ${grouped(postgres.most)}.`,
    advice:
      'Postgres refuses further connections. Raise max_connections, lower DATABASE_POOL_SIZE, or close other clients.',
  };
}

/** Stores that answer, but late; and a replica that is behind. */
export function storesSlow({ postgres, redis }: Found): Verdict | undefined {
  for (const [name, store] of [
    ['Postgres', postgres],
    ['Redis', redis],
  ] as const)
    if (store && store.latency >= SLOW_MS)
      return {
        tone: 'warn',
        sentence: `${name} answers in ${grouped(Math.round(store.latency))} ms, which slows down requests and workers.`,
        advice: `Check the load of its machine and the network. This message appears above ${SLOW_MS} ms.`,
      };
  const { lagSeconds = 0 } = redis ?? {};
  if (lagSeconds < LAG_SECONDS) return undefined;
  return {
    tone: 'warn',
    sentence: `A replica of Redis is ${duration(lagSeconds)} behind: a failover now could lose the changes of this time.`,
    advice: 'Check the disk of the replica and the network.',
  };
}

export function largeProcess({ processes = [] }: Found): Verdict | undefined {
  const large = living(processes, 'web', 'worker', 'sync', 'board').find(
    ({ residentBytes }) => residentBytes > LARGE_BYTES,
  );
  if (!large) return undefined;
  return {
    tone: 'warn',
    sentence: `${large.name} ${large.host} (pid ${large.pid}) has ${amount(large.residentBytes, 'bytes')} of memory.`,
    advice:
      'If the memory keeps growing, restart the process with SIGTERM, which loses nothing. For web, lower MAX_READING_BYTES and MAX_SMALL_BODIES_BYTES.',
  };
}

/** Releases of the processes that are there. */
export const releasesOf = ({ processes = [] }: Found) => [
  ...new Set(living(processes, 'web', 'worker', 'sync', 'board').map(({ version }) => version)),
];

export function releasesDiffer(found: Found): Verdict | undefined {
  const releases = releasesOf(found).sort();
  if (releases.length < 2) return undefined;
  return {
    tone: 'warn',
    sentence: `${releases.length} releases are running: ${releases.join(' and ')}.`,
    advice: 'Two releases may run together only during an upgrade. Finish the upgrade, or revert it.',
  };
}
