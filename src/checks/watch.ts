import type { Service } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { type Poller, poll, rest } from '../platform/poll.ts';
import { BEAT_SECONDS, SILENT_SECONDS } from '../store/processes.ts';
import type { Problem } from './check.ts';
import type { Lacking, Readings } from './readings.ts';
import { living } from './text.ts';

/** Id of the check for writes that Postgres refused. */
const REFUSED_WRITES = 'postgres-rejects-writes';

/** Milliseconds between two readings. Processes send heartbeats as often. */
const READ_MS = BEAT_SECONDS * 1000;

/**
 * Milliseconds between two readings of the stores that processes report as missing or as refusing writes. They report
 * this at once, and one small statement is cheaper than a reading of everything.
 */
const REPORTS_MS = 500;

/** Milliseconds between the reading that finds a new problem and the one that confirms it. */
const CONFIRM_MS = 500;

/** Milliseconds after SILENT_SECONDS without a heartbeat at which the process is read as silent. */
const SILENCE_MARGIN_MS = 50;

/** A problem flaps if it starts more often than MAX_STARTS times within FLAP_MS, until it has not changed for FLAP_MS. */
const FLAP_MS = 60_000;
const MAX_STARTS = 3;

/** The fleet at one point in time, with its problems. */
export type Evaluated = Readings & { problems: readonly Problem[] };

interface WatchOptions {
  /** Name and id of the watching process. */
  self: { name: 'web' | 'board'; id: string };
  /** Reads the fleet and evaluates the checks. Never rejects. */
  read(): Promise<Evaluated>;
  /** Reads which processes miss a store or cannot write. The problems are read when the result has changed. */
  readReports(): Promise<unknown>;
  /** Whether this process has confirmed an outage of its stores itself, so that one reading of a critical problem is sufficient. */
  isOutage(): boolean;
  log: Pick<Log, 'warn' | 'info'>;
}

/** A problem that exists now, or existed in the last FLAP_MS. Times are from `performance.now()`. */
interface Watched {
  problem: Problem;
  firstAt: number;
  isConfirmed: boolean;
  /** Whether the latest reading lacked the problem. Its end is confirmed by the next reading. */
  isMissing: boolean;
  /** Time of the end; undefined while the problem exists. */
  endedAt?: number | undefined;
  /** Times of the confirmed starts within FLAP_MS, the latest last. */
  starts: number[];
  /** Time of the latest confirmed start or end. */
  changedAt: number;
  /** Whether the line about flapping was written. No line about a start or an end follows until the problem is steady. */
  isFlapping: boolean;
}

/**
 * Reads the problems of the installation every few seconds, for /readyz and the log. A problem counts when two
 * readings in succession have it. Every web process and every console watches, and one of them logs: the oldest web
 * process, or the oldest console if no web process runs.
 */
export class ProblemWatch implements Service {
  readonly name = 'problems';
  readonly #options: WatchOptions;
  readonly #watched = new Map<string, Watched>();
  readonly #poller: Poller;
  readonly #reportPoller: Poller;
  #reports = '[]';
  #current: readonly Problem[] = [];
  /** Whether this process logs. Kept while the list of processes cannot be read. */
  #isSpeaker = false;
  #isStopped = false;
  #isDue = false;
  #silence: NodeJS.Timeout | undefined;

  constructor(options: WatchOptions) {
    this.#options = options;
    this.#poller = poll(READ_MS, () => this.runOnce());
    // An error means that Postgres does not answer, which the dependencies of the process notice.
    this.#reportPoller = poll(REPORTS_MS, () => this.#readReports());
  }

  /** Returns the confirmed problems of the last reading, most severe first. */
  readonly problems = (): readonly Problem[] => this.#current;

  /** Reads now instead of at the next interval. */
  readonly soon = (): void => {
    this.#isDue = true;
    if (!this.#isStopped) void this.#poller.now();
  };

  /** Reads the problems, and reads again if a new one has to be confirmed. */
  async runOnce(): Promise<void> {
    do {
      // A reading that has begun before a call of `soon` may lack the change.
      this.#isDue = false;
      const isUnconfirmed = await this.#readOnce();
      if (!isUnconfirmed || this.#isStopped || this.#isDue) continue;
      await rest(CONFIRM_MS);
      if (!this.#isStopped) await this.#readOnce();
    } while (this.#isDue && !this.#isStopped);
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#silence);
    await Promise.all([this.#poller.stop(), this.#reportPoller.stop()]);
  }

  async #readReports(): Promise<void> {
    const reports = JSON.stringify(await this.#options.readReports());
    if (reports === this.#reports) return;
    this.#reports = reports;
    this.soon();
  }

  /** @returns whether a problem started or ended that the next reading has to confirm */
  async #readOnce(): Promise<boolean> {
    const now = performance.now();
    const evaluated = await this.#options.read();
    const { problems } = evaluated;
    this.#elect(evaluated);
    this.#scheduleSilence(evaluated);
    const isUnconfirmed = this.#noteFound(problems, now, this.#options.isOutage());
    // While a store is away, its problem hides others, which have not ended.
    const isWhole = evaluated.lacking.length === 0 && !evaluated.unread;
    const found = new Set(problems.map(keyOf));
    const isMissed = isWhole && this.#noteMissing(found, now);
    this.#noteSteady(found, now);
    this.#current = problems.filter((one) => this.#watched.get(keyOf(one))?.isConfirmed);
    return isUnconfirmed || isMissed;
  }

  /** Schedules a reading for the moment at which a process without heartbeats counts as gone. */
  #scheduleSilence({ processes = [] }: Evaluated): void {
    clearTimeout(this.#silence);
    const left = processes
      .map(({ silentSeconds }) => 1000 * (SILENT_SECONDS - silentSeconds) + SILENCE_MARGIN_MS)
      .filter((milliseconds) => milliseconds > 0 && milliseconds < READ_MS);
    if (left.length > 0) this.#silence = setTimeout(this.soon, Math.min(...left)).unref();
  }

  #elect({ processes }: Evaluated): void {
    if (!processes) return;
    const [web] = living(processes, 'web').sort(byId);
    const [board] = living(processes, 'board').sort(byId);
    this.#isSpeaker = (web ?? board)?.id === this.#options.self.id;
  }

  #noteFound(problems: readonly Problem[], now: number, isOutage: boolean): boolean {
    let isUnconfirmed = false;
    for (const problem of problems) {
      const known = this.#watched.get(keyOf(problem));
      const isNew = known === undefined || known.endedAt !== undefined;
      // Only critical problems describe an outage. Readings during its end find others that do not last. A refused write
      // needs no second reading, because Postgres itself refused it.
      const isConfirmed =
        !isNew || problem.id === REFUSED_WRITES || (problem.severity === 'critical' && isOutage);
      const one: Watched = {
        ...(known ?? { starts: [], changedAt: now, isFlapping: false }),
        ...{ problem, isConfirmed, isMissing: false, endedAt: undefined },
        firstAt: isNew ? now : known.firstAt,
      };
      this.#watched.set(keyOf(problem), one);
      isUnconfirmed ||= !isConfirmed;
      const isStart = isConfirmed && (isNew || !known.isConfirmed);
      if (isStart) this.#noteStart(one, now);
    }
    return isUnconfirmed;
  }

  #noteMissing(found: ReadonlySet<string>, now: number): boolean {
    let isUnconfirmed = false;
    for (const [key, one] of this.#watched) {
      if (found.has(key)) continue;
      if (one.endedAt !== undefined) {
        if (!one.isFlapping && now - one.changedAt >= FLAP_MS) this.#watched.delete(key);
      } else if (!one.isConfirmed) {
        // The starts of a problem are kept for the next one.
        one.endedAt = now;
      } else if (!one.isMissing) {
        one.isMissing = true;
        isUnconfirmed = true;
      } else {
        Object.assign(one, { endedAt: now, changedAt: now });
        if (!one.isFlapping) this.#logEnd(one, now);
      }
    }
    return isUnconfirmed;
  }

  #noteStart(one: Watched, now: number): void {
    one.starts = [...one.starts.filter((at) => now - at < FLAP_MS), now].slice(-MAX_STARTS - 1);
    one.changedAt = now;
    if (one.isFlapping) return;
    one.isFlapping = one.starts.length > MAX_STARTS;
    if (!one.isFlapping) this.#logStart(one.problem);
    else this.#logStart(one.problem, 'problem flaps', { starts: one.starts.length, seconds: FLAP_MS / 1000 });
  }

  /** Logs the state of each problem that flapped and has not changed for FLAP_MS. */
  #noteSteady(found: ReadonlySet<string>, now: number): void {
    for (const [key, one] of this.#watched) {
      if (!one.isFlapping || now - one.changedAt < FLAP_MS) continue;
      if (one.endedAt === undefined && !one.isConfirmed) continue;
      // A missing store hides the problem.
      if (one.endedAt === undefined && !found.has(key)) continue;
      one.isFlapping = false;
      if (one.endedAt === undefined) this.#logStart(one.problem);
      else this.#logEnd(one, one.endedAt);
    }
  }

  #logStart(problem: Problem, text = 'problem began', more: object = {}): void {
    if (!this.#isSpeaker) return;
    const { id, subject, severity, sentence, since } = problem;
    const level = severity === 'info' ? 'info' : 'warn';
    this.#options.log[level]({ check: id, subject, severity, problem: sentence, since, ...more }, text);
  }

  #logEnd({ problem: { id, subject, sentence }, firstAt }: Watched, now: number): void {
    if (!this.#isSpeaker) return;
    const seconds = Math.round((now - firstAt) / 1000);
    this.#options.log.info({ check: id, subject, problem: sentence, seconds }, 'problem ended');
  }
}

/** Returns whether a process itself sees that a store is away or refuses writes. It has confirmed this by a second check. */
export const isOutage = (
  dependencies: { lacking(): Lacking[]; isReadOnly(): boolean },
  rejectsWrites: () => Readings['rejectsWrites'],
): boolean => dependencies.lacking().length > 0 || dependencies.isReadOnly() || rejectsWrites() !== undefined;

const keyOf = ({ id, subject }: Problem) => `${id} ${subject}`;

/** Ids are UUIDv7, so the process with the lowest id is the oldest. */
const byId = (one: { id: string }, other: { id: string }) => (one.id < other.id ? -1 : 1);
