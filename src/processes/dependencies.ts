import path from 'node:path';
import type { Dependency, Lacking } from '../checks/readings.ts';
import { databaseUrlOf } from '../embedded/address.ts';
import { type Config, ConfigError } from '../platform/config.ts';
import { START_COMMAND } from '../platform/files.ts';
import type { Service } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { backOff, pacedInterval, rest } from '../platform/poll.ts';
import type { QueueConnection } from '../queue/connection.ts';
import type { Pool } from '../store/database.ts';
import { isMigrated } from '../store/migrations.ts';
import { type PoolMode, UnsupportedPooling, withPooling } from '../store/pooling.ts';

/**
 * Maximum milliseconds for the answer of a dependency. A dependency counts as missing after two failed checks, so a store
 * may stop for 2 * PATIENCE_MS + CONFIRM_MS, for example for an fsync.
 */
const PATIENCE_MS = 300;

/** Milliseconds between two checks, and before the check that confirms a first failure. */
const CHECK_MS = 250;
const CONFIRM_MS = 100;

/** Milliseconds for which the tables of this release are assumed to exist after they were found, while Postgres answers. */
const MIGRATED_MS = 10_000;

/** Milliseconds between two log lines about a dependency that repeatedly fails. The interval doubles up to the longest. */
const REPEAT_MS = 5000;
const MAX_REPEAT_MS = 300_000;

/** After this many milliseconds without a failure, the log interval of a dependency is reset. */
const STEADY_MS = 60_000;

const resumes = 'this process is waiting and resumes by itself';

/** Stable texts by error code of Node or SQLSTATE, because the texts of the libraries change. */
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

/** Log messages for missing dependencies. They are the same in every process. */
const sentences: Record<Dependency, (reason: string) => string> = {
  postgres: (reason) => `Postgres does not answer (${reason}); ${resumes} when it does`,
  migrations: () =>
    `Postgres does not have the tables of this release: ${release}; ${resumes} when that is done`,
  redis: (reason) => `Redis does not answer (${reason}); ${resumes} when it does`,
  queue: (reason) =>
    `the queue in Postgres does not answer (${reason}): if it has no tables, ${release}; ${resumes} when it does`,
  producer: (reason) =>
    `this process cannot add objects to the queue (${reason}); it tries again and continues by itself`,
};

const back: Record<Dependency, string> = {
  postgres: 'Postgres answered',
  migrations: 'the tables of this release were created',
  redis: 'Redis answered',
  queue: 'the queue in Postgres answered',
  producer: 'this process connected to the queue again',
};

/** The log state of a dependency that is missing or was missing recently. Times are from `performance.now()`. */
interface LogState {
  since: number;
  /** Time at which the dependency was available again. Absent while it is missing. */
  until?: number | undefined;
  /** Whether the current failure was logged. */
  isLogged?: boolean;
  /** Time from which the next failure may be logged, and a function that returns the interval after that. */
  next: number;
  repeat: () => number;
}

/** Maximum attempts of the same work, because a dependency may fail again immediately. */
const MAX_ATTEMPTS = 5;

export interface Dependencies extends Service {
  /**
   * Runs the work when no dependency is missing, and repeats it a few times if it fails.
   * @throws the last error of the work
   */
  whenComplete<T>(work: () => Promise<T>): Promise<T>;
  /** Checks now, and returns the missing dependencies. Takes at most READY_PATIENCE_MS. */
  check(): Promise<Dependency[]>;
  /** Returns the dependencies that were missing at the last two checks. */
  missing(): Dependency[];
  /** Returns the dependencies that were missing at the last two checks, with the time since when. */
  lacking(): Lacking[];
  /** Whether Postgres answers and refuses every write, at the last check. */
  isReadOnly(): boolean;
  /** Sets the listener for a dependency that goes missing or is available again, or for a changed `isReadOnly`. */
  onChange(listener: () => void): void;
}

interface DependenciesOptions {
  pool: Pool;
  connection: QueueConnection;
  /** Checks of further connections that the process needs. Each rejects if its connection is not open. */
  pings?: Pings;
  log: Log;
  /** Ends the process if a dependency can never become available. Exits with 1 by default. */
  exit?(): void;
}

export interface Pings {
  /** Checks the server with the rate limits, if it is not the server of the queue. */
  limits?: (() => Promise<void>) | undefined;
  /** Checks the producer of the process. */
  producer?: (() => Promise<void>) | undefined;
}

/**
 * Checks the dependencies of a process periodically and logs missing ones, with one line when a dependency goes missing
 * and one when it is available again.
 */
export function watchDependencies({
  pool,
  connection,
  pings,
  log,
  exit = () => process.exit(1),
}: DependenciesOptions): Dependencies {
  const logStates = new Map<Dependency, LogState>();
  const since = new Map<Dependency, Date>();
  let lacking: Lack[] = [];
  let changed = () => {};
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;
  let isComplete = () => {};
  let wasComplete = false;

  let isReadOnly = false;
  const hasTables = createTablesCheck(pool, (value) => {
    const isChanged = value !== isReadOnly;
    isReadOnly = value;
    if (isChanged) changed();
  });
  const check = async () =>
    causes(await findLacking(hasTables, connection, { pings, patience: PATIENCE_MS }));

  async function checkRepeatedly(): Promise<void> {
    const missing = await check();
    const refusal = missing.find((one) => one.refusal)?.refusal;
    if (refusal && !stopped) {
      log.fatal(refusal.message);
      exit();
    }
    // A single failed check may be caused by a connection that is just being opened, or by a busy event loop.
    const confirmed = missing.filter(({ name }) => lacking.some((one) => one.name === name));
    const isUnconfirmed = confirmed.length < missing.length;
    lacking = missing;
    noteSince(confirmed);
    if (stopped) return;
    logChanges(confirmed, performance.now());
    if (missing.length === 0) {
      wasComplete = true;
      isComplete();
    }
    // A `poll` has a fixed interval, while a first failure is confirmed sooner. The timer keeps the process running until
    // all dependencies have been available once.
    timer = setTimeout(checkRepeatedly, isUnconfirmed ? CONFIRM_MS : pacedInterval(CHECK_MS));
    if (wasComplete) timer.unref();
  }

  function noteSince(confirmed: Lack[]): void {
    const before = [...since.keys()].join();
    for (const name of since.keys()) if (!lacking.some((one) => one.name === name)) since.delete(name);
    for (const { name } of confirmed) if (!since.has(name)) since.set(name, new Date(Date.now()));
    if ([...since.keys()].join() !== before) changed();
  }

  function logChanges(confirmed: Lack[], now: number): void {
    for (const { name, reason } of confirmed) {
      const one = logStates.get(name) ?? {
        since: now,
        next: now,
        repeat: backOff(REPEAT_MS, MAX_REPEAT_MS),
      };
      if (one.until !== undefined) one.since = now;
      one.until = undefined;
      logStates.set(name, one);
      // One line per change of state.
      if (one.isLogged || now < one.next) continue;
      one.isLogged = true;
      one.next = now + one.repeat();
      log.warn({ missing: name, seconds: Math.round((now - one.since) / 1000) }, sentences[name](reason));
    }
    for (const [name, one] of logStates) {
      if (lacking.some((lack) => lack.name === name)) continue;
      if (one.until === undefined) {
        one.until = now;
        if (!one.isLogged) continue;
        one.isLogged = false;
        log.info({ was_missing: name, seconds: Math.round((now - one.since) / 1000) }, back[name]);
      }
      if (now - one.until > STEADY_MS) logStates.delete(name);
    }
  }

  async function whenComplete<T>(work: () => Promise<T>): Promise<T> {
    for (let left = MAX_ATTEMPTS; ; left--) {
      // In a process that is stopping, this wait never ends.
      await new Promise<void>((resolve) => {
        isComplete = resolve;
        if (wasComplete && lacking.length === 0) resolve();
      });
      try {
        return await work();
      } catch (error) {
        if (left === 1) throw error;
        await rest(CHECK_MS);
        lacking = await check();
      }
    }
  }

  const confirmedNow = () => lacking.filter(({ name }) => since.has(name));

  void checkRepeatedly();
  return {
    name: 'dependencies',
    whenComplete,
    async check() {
      const present = (patience: number) => isMigrated(pool, patience);
      const found = await findLacking(present, connection, { pings, patience: READY_PATIENCE_MS });
      return found.map(({ name }) => name);
    },
    missing: () => confirmedNow().map(({ name }) => name),
    lacking: () => confirmedNow().map(({ name }) => ({ name, since: since.get(name) })),
    isReadOnly: () => isReadOnly && !lacking.some(({ name }) => name === 'postgres'),
    onChange(listener) {
      changed = listener;
    },
    async stop() {
      stopped = true;
      clearTimeout(timer);
    },
  };
}

/** Removes the queue in Postgres if Postgres or its tables are missing, because that is the cause. */
function causes(lacking: Lack[]): Lack[] {
  return withoutConsequence(lacking, 'queue', ['postgres', 'migrations']);
}

/** Removes a dependency that cannot be available while one of `others` is missing. */
function withoutConsequence(lacking: Lack[], dropped: Dependency, others: Dependency[]): Lack[] {
  const isCause = ({ name }: Lack) => others.includes(name);
  return lacking.some(isCause) ? lacking.filter(({ name }) => name !== dropped) : lacking;
}

/**
 * Returns the URL of the Postgres server: DATABASE_URL, or that of the embedded server in DATA_DIR.
 * @throws {ConfigError} if both are missing
 */
export function databaseUrl(config: Config): string {
  const url = findDatabaseUrl(config);
  if (url) return url;
  throw new ConfigError(
    `DATABASE_URL is empty and no embedded Postgres was ever started in DATA_DIR (${path.resolve(config.DATA_DIR)}); ${START_COMMAND} starts one`,
  );
}

/** Returns the same URL as `databaseUrl`, or undefined if there is none. */
export function findDatabaseUrl(config: Config): string | undefined {
  const url = databaseUrlOf(config);
  return url && withPooling(url, config.DATABASE_POOLING as PoolMode | '');
}

/** Returns the URL for connections that need a session of their own: DATABASE_DIRECT_URL, or the URL of `databaseUrl`. */
export function directDatabaseUrl(config: Config): string {
  return config.DATABASE_DIRECT_URL || databaseUrl(config);
}

/** Maximum milliseconds for the answer of a dependency to a readiness check: as long as two checks and their pause. */
const READY_PATIENCE_MS = 2 * PATIENCE_MS + CONFIRM_MS;

/** A missing dependency with the latest reason. */
interface Lack {
  name: Dependency;
  reason: string;
  /** Set if waiting does not help. */
  refusal?: UnsupportedPooling;
}

interface CheckOptions {
  pings?: Pings | undefined;
  /** Maximum milliseconds for the answer of a dependency. */
  patience: number;
}

/** Reads no table. `transaction_read_only` is also on while a server is a standby. */
const READ_ONLY = `select pg_catalog.current_setting('transaction_read_only') = 'on' as "isReadOnly"`;

/**
 * Creates a check that Postgres answers and has the tables of this release. The list of migrations is read only every
 * MIGRATED_MS, and after each time that Postgres did not answer.
 * @param noteReadOnly receives at each check whether Postgres is read-only
 */
function createTablesCheck(
  pool: Pool,
  noteReadOnly: (value: boolean) => void,
): (patience: number) => Promise<boolean> {
  let foundAt: number | undefined;
  return async (patience) => {
    const isKnown = foundAt !== undefined && performance.now() - foundAt < MIGRATED_MS;
    const before = foundAt;
    foundAt = undefined;
    if (!isKnown && !(await isMigrated(pool, patience))) return false;
    const { rows } = await pool.query<{ isReadOnly: boolean }>({
      ...{ text: READ_ONLY, query_timeout: patience },
    } as never);
    noteReadOnly(rows[0]!.isReadOnly);
    foundAt = isKnown ? before : performance.now();
    return true;
  };
}

/** Returns the missing dependencies with reasons. */
async function findLacking(
  hasTables: (patience: number) => Promise<boolean>,
  connection: QueueConnection,
  { pings = {}, patience }: CheckOptions,
): Promise<Lack[]> {
  const checks: Promise<Lack | undefined>[] = [
    inTurns(patience, hasTables(2 * patience)).then(
      (migrated) => (migrated ? undefined : { name: 'migrations', reason: 'tables are missing' }),
      lack('postgres'),
    ),
    inTurns(patience, connection.ping(2 * patience)).then(
      () => undefined,
      lack(connection.kind === 'redis' ? 'redis' : 'queue'),
    ),
    inTurns(patience, pings.limits?.() ?? answered).then(() => undefined, lack('redis')),
    inTurns(patience, pings.producer?.() ?? answered).then(() => undefined, lack('producer')),
  ];
  const lacking = (await Promise.all(checks)).filter((one) => one !== undefined);
  return withoutConsequence(lacking, 'producer', ['redis', 'queue']);
}

const answered = Promise.resolve();

/** Number of turns of the event loop in which a response may arrive. */
const TURNS = 4;

/** Limits the time of `work`, in several turns: a blocked event loop must not count as waiting for a response. */
function inTurns<T>(milliseconds: number, work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    let left = TURNS;
    let timer: NodeJS.Timeout;
    const wait = () => {
      timer = setTimeout(() => (--left > 0 ? wait() : reject(new Error('no answer'))), milliseconds / TURNS);
    };
    wait();
    work.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

function lack(name: Dependency): (error: unknown) => Lack {
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
