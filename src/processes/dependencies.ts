import path from 'node:path';
import { databaseUrlOf } from '../embedded/address.ts';
import { type Config, ConfigError } from '../platform/config.ts';
import { START_COMMAND } from '../platform/files.ts';
import { type Service, within } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { backOff, rest } from '../platform/poll.ts';
import type { QueueConnection } from '../queue/connection.ts';
import type { Pool } from '../store/database.ts';
import { isMigrated } from '../store/migrations.ts';
import { type PoolMode, UnsupportedPooling, withPooling } from '../store/pooling.ts';

/** Milliseconds in which a dependency has to answer; a process that is busy needs some itself. */
const PATIENCE_MS = 3000;

/** Milliseconds between two looks, while something is missing and while nothing is. */
const LOOK_MS = 500;
const CALM_LOOK_MS = 5000;

/** Milliseconds between two lines about a dependency that comes and goes; they double up to the longest. */
const REPEAT_MS = 5000;
const LONGEST_REPEAT_MS = 300_000;

/** A dependency that comes and goes in less than these milliseconds is not logged each time. */
const STEADY_MS = 60_000;

const waits = 'this process is waiting and resumes by itself';

/** Reasons in our words, by the code of Node or the SQLSTATE; the library's own text is not stable. */
const REASONS: Record<string, string> = {
  ECONNREFUSED: 'connection refused',
  ENOENT: 'no socket',
  ENOTFOUND: 'unknown host',
  EAI_AGAIN: 'unknown host',
  '28000': 'login refused',
  '28P01': 'login refused',
  '3D000': 'no such database',
  '53300': 'too many connections',
  '57P03': 'starting up',
  UNPROVEN_SERVER: 'another program listens there',
};
const release = 'run the release step (node dist/src/release.js, or penstock migrate)';

/** One sentence each, the same in every process. */
const sentences: Record<Missing, (reason: string) => string> = {
  postgres: (reason) => `Postgres does not answer (${reason}); ${waits} when it does`,
  migrations: () =>
    `Postgres does not have the tables of this release: ${release}; ${waits} when that is done`,
  redis: (reason) => `Redis does not answer (${reason}); ${waits} when it does`,
  queue: (reason) =>
    `the queue in Postgres does not answer (${reason}): if it has no tables, ${release}; ${waits} when it does`,
  producer: (reason) =>
    `this process cannot add objects to the queue (${reason}); it tries again and continues by itself`,
};

const back: Record<Missing, string> = {
  postgres: 'Postgres answered',
  migrations: 'the tables of this release were created',
  redis: 'Redis answered',
  queue: 'the queue in Postgres answered',
  producer: 'this process connected to the queue again',
};

/** Of one that is missing, or was a moment ago; times by `performance.now()`. */
interface Told {
  since: number;
  /** When it came back; absent while it is missing. */
  until?: number | undefined;
  /** Whether there was a line since it went. */
  said?: boolean;
  /** When the next line is due, and what gives how long after it the one after that is. */
  next: number;
  repeat: () => number;
}

/** Tries of the same work, since what was there at one moment may be gone at the next. */
const TRIES = 5;

export interface Dependencies extends Service {
  /**
   * What the work gives, once nothing is missing; tried again a few times when it fails all the same.
   * @throws what the work says at last
   */
  whenComplete<T>(work: () => Promise<T>): Promise<T>;
  /** What was missing at the last look. */
  missing(): Missing[];
}

export interface DependenciesOptions {
  pool: Pool;
  connection: QueueConnection;
  /** Rejects when a connection that the process needs besides these two is not open. */
  pings?: Pings;
  log: Log;
  /** Ends the process where it can never have what it needs; exits 1 by default. */
  exit?(): void;
}

export interface Pings {
  /** Rate limits that live in a server other than the queue's. */
  limits?: (() => Promise<void>) | undefined;
  /** The producer of the process. */
  producer?: (() => Promise<void>) | undefined;
}

/**
 * Looks again and again whether a process has what it cannot do without, and says in the log what it has not. One
 * sentence each: once when it goes missing, and once when it is back.
 */
export function watchDependencies({
  pool,
  connection,
  pings,
  log,
  exit = () => process.exit(1),
}: DependenciesOptions): Dependencies {
  const told = new Map<Missing, Told>();
  let lacking: Lack[] = [];
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;
  let isComplete = () => {};
  let wasComplete = false;

  const look = async () => causes(await findLacking(pool, connection, { pings, patience: PATIENCE_MS }));

  async function lookOn(): Promise<void> {
    const found = await look();
    const refusal = found.find((one) => one.refusal)?.refusal;
    if (refusal && !stopped) {
      log.fatal(refusal.message);
      exit();
    }
    // One look that came to nothing may be a connection that is being made, or a busy moment of the process's own.
    const sure = found.filter(({ name }) => lacking.some((one) => one.name === name));
    lacking = found;
    if (stopped) return;
    tell(sure, performance.now());
    if (found.length === 0) {
      wasComplete = true;
      isComplete();
    }
    // No poller: it looks more often while something is missing, and keeps the process running until nothing is.
    timer = setTimeout(lookOn, found.length === 0 ? CALM_LOOK_MS : LOOK_MS);
    if (wasComplete) timer.unref();
  }

  function tell(sure: Lack[], now: number): void {
    for (const { name, reason } of sure) {
      const one = told.get(name) ?? { since: now, next: now, repeat: backOff(REPEAT_MS, LONGEST_REPEAT_MS) };
      if (one.until !== undefined) one.since = now;
      one.until = undefined;
      told.set(name, one);
      // One line per change of state.
      if (one.said || now < one.next) continue;
      one.said = true;
      one.next = now + one.repeat();
      log.warn({ missing: name, seconds: Math.round((now - one.since) / 1000) }, sentences[name](reason));
    }
    for (const [name, one] of told) {
      if (lacking.some((lack) => lack.name === name)) continue;
      if (one.until === undefined) {
        one.until = now;
        if (!one.said) continue;
        one.said = false;
        log.info({ was_missing: name, seconds: Math.round((now - one.since) / 1000) }, back[name]);
      }
      if (now - one.until > STEADY_MS) told.delete(name);
    }
  }

  async function whenComplete<T>(work: () => Promise<T>): Promise<T> {
    for (let left = TRIES; ; left--) {
      // For ever in a process that is stopping.
      await new Promise<void>((resolve) => {
        isComplete = resolve;
        if (wasComplete && lacking.length === 0) resolve();
      });
      try {
        return await work();
      } catch (error) {
        if (left === 1) throw error;
        await rest(LOOK_MS);
        lacking = await look();
      }
    }
  }

  void lookOn();
  return {
    name: 'dependencies',
    whenComplete,
    missing: () => lacking.map(({ name }) => name),
    async stop() {
      stopped = true;
      clearTimeout(timer);
    },
  };
}

/** A queue in a Postgres that is away, or has no tables, is not missing by itself. */
function causes(lacking: Lack[]): Lack[] {
  return withoutConsequence(lacking, 'queue', ['postgres', 'migrations']);
}

/** Drops one dependency that cannot be there while one of `others` is missing. */
function withoutConsequence(lacking: Lack[], dropped: Missing, others: Missing[]): Lack[] {
  const isCause = ({ name }: Lack) => others.includes(name);
  return lacking.some(isCause) ? lacking.filter(({ name }) => name !== dropped) : lacking;
}

/**
 * The Postgres that a process works on: DATABASE_URL, else the embedded one of DATA_DIR.
 * @throws {ConfigError} when there is neither
 */
export function databaseUrl(config: Config): string {
  const url = findDatabaseUrl(config);
  if (url) return url;
  throw new ConfigError(
    `DATABASE_URL is empty and no embedded Postgres was ever started in DATA_DIR (${path.resolve(config.DATA_DIR)}); ${START_COMMAND} starts one`,
  );
}

/** As `databaseUrl`; undefined when there is neither. */
export function findDatabaseUrl(config: Config): string | undefined {
  const url = databaseUrlOf(config);
  return url && withPooling(url, config.DATABASE_POOLING as PoolMode | '');
}

/** Postgres for what needs a session of its own: DATABASE_DIRECT_URL, else as `databaseUrl`. */
export function directDatabaseUrl(config: Config): string {
  return config.DATABASE_DIRECT_URL || databaseUrl(config);
}

/** Milliseconds in which a dependency has to answer. */
const READY_PATIENCE_MS = 1000;

/**
 * `migrations`: Postgres answers, but lacks tables of this version. `redis`: of the queue, or of the rate limits.
 * `queue`: that in Postgres. `producer`: the queue answers, and a connection that the process adds objects by is not open.
 */
export type Missing = 'postgres' | 'migrations' | 'redis' | 'queue' | 'producer';

/** What a process cannot do without and does not have now, and what was heard of it last. */
interface Lack {
  name: Missing;
  reason: string;
  /** Set where waiting does not help. */
  refusal?: UnsupportedPooling;
}

/** What a process cannot do without and does not have now, each by name; known after a second at the latest. */
export async function checkReadiness(
  pool: Pool,
  connection: QueueConnection,
  pings: Pings = {},
): Promise<Missing[]> {
  const lacking = await findLacking(pool, connection, { pings, patience: READY_PATIENCE_MS });
  return lacking.map(({ name }) => name);
}

interface LookOptions {
  pings?: Pings | undefined;
  /** Milliseconds in which a dependency has to answer. */
  patience: number;
}

/** As `checkReadiness`, with reasons. */
async function findLacking(
  pool: Pool,
  connection: QueueConnection,
  { pings = {}, patience }: LookOptions,
): Promise<Lack[]> {
  const checks: Promise<Lack | undefined>[] = [
    within(patience, isMigrated(pool, patience)).then(
      (migrated) => (migrated ? undefined : { name: 'migrations', reason: 'tables are missing' }),
      lack('postgres'),
    ),
    within(patience, connection.ping(patience)).then(
      () => undefined,
      lack(connection.kind === 'redis' ? 'redis' : 'queue'),
    ),
    within(patience, pings.limits?.() ?? answered).then(() => undefined, lack('redis')),
    within(patience, pings.producer?.() ?? answered).then(() => undefined, lack('producer')),
  ];
  const lacking = (await Promise.all(checks)).filter((one) => one !== undefined);
  return withoutConsequence(lacking, 'producer', ['redis', 'queue']);
}

const answered = Promise.resolve();

function lack(name: Missing): (error: unknown) => Lack {
  return (error) => ({
    ...{ name, reason: reasonOf(error) },
    ...(error instanceof UnsupportedPooling && { refusal: error }),
  });
}

function reasonOf(error: unknown): string {
  const { code } = error as { code?: unknown };
  if (typeof code === 'string') return REASONS[code] ?? code;
  return /^(NOAUTH|WRONGPASS|NOPERM)/.test((error as Error).message) ? 'login refused' : 'no answer';
}
