import type { Effect } from '../database.ts';
import { Later } from '../link.ts';
import type { Random } from '../random.ts';
import type { Trace } from '../trace.ts';
import type { World } from '../world.ts';
import type { Backend, Cluster } from './cluster.ts';
import { noteStatement } from './note-statement.ts';
import { SET_TIMES } from './times.ts';
import { Transaction } from './transaction.ts';

/** A statement as the driver receives it. */
export interface Statement {
  text: string;
  name?: string | undefined;
  values?: unknown[] | undefined;
}

/** The part of a result of `pg` that Penstock uses. */
export interface Result {
  command: string;
  rowCount: number | null;
  rows: Record<string, unknown>[];
}

/** An error with a SQLSTATE that the gate reports instead of Postgres. */
export class GateError extends Error {
  override name = 'error';
  readonly code: string;
  readonly severity: 'ERROR' | 'FATAL';

  constructor(code: string, message: string, severity: 'ERROR' | 'FATAL' = 'ERROR') {
    super(message);
    this.code = code;
    this.severity = severity;
  }
}

/** Real milliseconds until the gate checks whether a statement waits for a lock, and the longest pause between checks. */
const FIRST_CHECK_MS = 3;
const MAX_CHECK_MS = 50;

/** Simulated milliseconds after which Postgres would search for a deadlock. */
const DEADLOCK_MS = 1000;

/** Probabilities that a session pauses between two statements, and the longest pause in simulated milliseconds. */
const LONG_PAUSE_CHANCES = [0.002, 0.01, 0.05];
const MAX_PAUSE_MS = 150;

/** The outcome of a statement. */
type Outcome = { result: Result } | { error: Error };

/** A statement at the server. */
interface Running {
  session: Session;
  statement: Statement;
  answer: Later<Result>;
  outcome: Outcome | undefined;
  /** Resolves when there is an outcome. */
  ended: Promise<unknown>;
  /** The error that the gate reports for a statement that it has canceled. */
  reason: Error | undefined;
}

export interface GateOptions {
  cluster: Cluster;
  world: World;
  trace: Trace;
  random: Random;
  /** Simulated milliseconds without a statement after which the server ends a transaction. */
  idleTimeout: number;
}

/**
 * Runs all statements of simulated processes on Postgres. One statement runs at a time, and simulated time does not advance
 * meanwhile. If a statement waits for a lock, the gate parks it: it stops the server process, because otherwise the operating
 * system would choose when the statement continues. When locks become free, the seed selects the statement that continues.
 */
export class Gate {
  readonly options: GateOptions;
  /** Objects in the order of the commits. */
  readonly effects: Effect[] = [];
  readonly #sessions = new Set<Session>();
  #parked: Running[] = [];
  readonly #pauseChance: number;
  #transactions = 0;

  constructor(options: GateOptions) {
    this.options = options;
    this.#pauseChance = options.random.pick(LONG_PAUSE_CHANCES);
  }

  /** Opens a session for a process. */
  open(client: string, onEnd: (error: Error) => void): Session {
    const session = new Session(this, client, onEnd);
    this.#sessions.add(session);
    return session;
  }

  /** Whether no process has an open transaction or a running statement. */
  get isIdle(): boolean {
    return [...this.#sessions].every(({ transaction, running }) => !transaction && !running);
  }

  nextTransaction(): number {
    return ++this.#transactions;
  }

  /** Runs a statement. Simulated time does not advance until the statement has ended, or waits for a lock. */
  run(session: Session, statement: Statement): Later<Result> {
    const answer = new Later<Result>();
    this.options.world.hold(this.#run(session, statement, answer));
    return answer;
  }

  async #run(session: Session, statement: Statement, answer: Later<Result>): Promise<void> {
    if (session.ending) {
      answer.fail(session.ending);
      return;
    }
    const running: Running = {
      ...{ session, statement, answer, outcome: undefined, reason: undefined },
      ended: Promise.resolve(),
    };
    session.backend ??= await this.options.cluster.take();
    session.running = running;
    running.ended = session.send(statement).then(
      (result) => {
        running.outcome = { result };
      },
      (error) => {
        running.outcome = { error };
      },
    );
    await this.#watch(running);
    await this.#continueParked();
  }

  /** Waits until a statement has ended. Parks the statement if it waits for a lock of another session. */
  async #watch(running: Running): Promise<void> {
    const { cluster } = this.options;
    for (let pause = FIRST_CHECK_MS; ; pause = Math.min(2 * pause, MAX_CHECK_MS)) {
      await endedWithin(running.ended, pause);
      if (running.outcome) {
        this.#finish(running, running.outcome);
        return;
      }
      const pid = running.session.backend!.pid;
      const [waiting] = await this.#blockersOf([pid]);
      if (waiting?.blockers.some((blocker) => cluster.has(blocker)) && !running.outcome) {
        this.#park(running, waiting.blockers);
        return;
      }
    }
  }

  async #blockersOf(pids: number[]): Promise<{ pid: number; blockers: number[] }[]> {
    const { rows } = await this.options.cluster.control.query<{ pid: number; blockers: number[] }>({
      name: 'blockers',
      text: 'select pid, pg_blocking_pids(pid) as blockers from unnest($1::integer[]) as pid',
      values: [pids],
    });
    return rows;
  }

  #park(running: Running, blockers: number[]): void {
    const { world, trace } = this.options;
    const { session } = running;
    process.kill(session.backend!.pid, 'SIGSTOP');
    this.#parked.push(running);
    const owners = [...this.#sessions].filter(({ backend }) => backend && blockers.includes(backend.pid));
    const isClaim = running.statement.name === 'claim-envelopes';
    trace.note(isClaim ? 'waits for a claim' : 'waits for a lock', {
      tx: session.transaction?.id,
      by: session.client,
      owner: owners.find(({ client }) => client !== session.client)?.client ?? session.client,
      statement: running.statement.name ?? running.statement.text.slice(0, 40),
    });
    const { limits } = session;
    const cancelLater = (delay: number, code: string, message: string) =>
      world.schedule(delay, () => {
        if (!this.#parked.includes(running)) return;
        if (code === '55P03') trace.note('lock timeout', { tx: session.transaction?.id, by: session.client });
        world.hold(this.#cancel(running, new GateError(code, message)));
      });
    if (limits && limits.lock > 0)
      cancelLater(limits.lock, '55P03', 'canceling statement due to lock timeout');
    if (limits && limits.statement > 0)
      cancelLater(limits.statement, '57014', 'canceling statement due to statement timeout');
    world.schedule(DEADLOCK_MS, () => {
      if (this.#parked.includes(running)) world.hold(this.#endDeadlock(running));
    });
  }

  /** Continues parked statements whose lock is free, one after the other, in an order that the seed decides. */
  async #continueParked(): Promise<void> {
    const { random } = this.options;
    while (this.#parked.length > 0) {
      const pids = this.#parked.map(({ session }) => session.backend!.pid);
      const free = (await this.#blockersOf(pids)).filter(({ blockers }) => blockers.length === 0);
      if (free.length === 0) return;
      const { pid } = random.pick(free);
      const running = this.#parked.find(({ session }) => session.backend!.pid === pid)!;
      this.#unpark(running);
      await this.#watch(running);
    }
  }

  #unpark(running: Running): void {
    this.#parked = this.#parked.filter((one) => one !== running);
    process.kill(running.session.backend!.pid, 'SIGCONT');
  }

  /** Cancels a parked statement. */
  async #cancel(running: Running, reason: Error): Promise<void> {
    running.reason = reason;
    await this.#cancelParked(running);
    await this.#continueParked();
  }

  async #cancelParked(running: Running): Promise<void> {
    const { pid } = running.session.backend!;
    await this.options.cluster.control.query('select pg_cancel_backend($1)', [pid]);
    this.#unpark(running);
    await running.ended;
    this.#finish(running, running.outcome!);
  }

  /** Cancels a parked statement if it waits for itself through other sessions. */
  async #endDeadlock(running: Running): Promise<void> {
    const pids = this.#parked.map(({ session }) => session.backend!.pid);
    const blockersByPid = new Map((await this.#blockersOf(pids)).map(({ pid, blockers }) => [pid, blockers]));
    const ownPid = running.session.backend!.pid;
    const reached = new Set<number>();
    const next = [...(blockersByPid.get(ownPid) ?? [])];
    for (let pid = next.pop(); pid !== undefined; pid = next.pop()) {
      if (reached.has(pid)) continue;
      reached.add(pid);
      next.push(...(blockersByPid.get(pid) ?? []));
    }
    if (!reached.has(ownPid)) return;
    const { trace } = this.options;
    trace.note('deadlock', { tx: running.session.transaction?.id, by: running.session.client });
    await this.#cancel(running, new GateError('40P01', 'deadlock detected'));
  }

  #finish(running: Running, outcome: Outcome): void {
    const { world, random } = this.options;
    const { session, statement, answer, reason } = running;
    session.running = undefined;
    session.lastUsed = world.now;
    session.note(statement, 'result' in outcome ? outcome.result : undefined);
    // The next statement of the session starts after the answer, so statements of other sessions may run in between.
    const [longest, least] = random.chance(this.#pauseChance) ? [MAX_PAUSE_MS, 1] : [0.3, 0.02];
    world.schedule(random.between(least, longest), () => {
      session.lastUsed = world.now;
      if ('result' in outcome) answer.answer(outcome.result);
      else answer.fail(reason ?? outcome.error);
    });
  }

  /** Ends a session: its transaction is rolled back, and further statements fail with the error. */
  end(session: Session, error: Error = new Error('Connection terminated unexpectedly')): void {
    if (session.ending) return;
    session.ending = error;
    const { transaction, client } = session;
    this.options.trace.note('session ended', {
      by: client,
      tx: transaction?.id,
      code: (error as { code?: unknown }).code,
    });
    this.options.world.hold(this.#end(session));
  }

  async #end(session: Session): Promise<void> {
    this.#sessions.delete(session);
    const { running } = session;
    if (running) await this.#cancelParked(running);
    session.rolledBack();
    if (session.backend) await session.leave();
    session.onEnd(session.ending!);
    await this.#continueParked();
  }

  /** Ends the sessions of a process, as an administrator does. */
  endSessionsOf(client: string): void {
    const text = 'terminating connection due to administrator command';
    for (const session of [...this.#sessions])
      if (session.client === client) this.end(session, new GateError('57P01', text, 'FATAL'));
  }

  /** Ends all sessions at the end of a simulation. */
  async close(): Promise<void> {
    for (const session of [...this.#sessions]) {
      if (session.ending) continue;
      session.ending = new Error('the simulation is over');
      await this.#end(session);
    }
  }
}

/** A session of a simulated process at the server. */
export class Session {
  readonly client: string;
  readonly onEnd: (error: Error) => void;
  readonly #gate: Gate;
  backend: Backend | undefined;
  running: Running | undefined;
  /** The error with which the session ended. Undefined while it is open. */
  ending: Error | undefined;
  transaction: Transaction | undefined;
  /** Limits of the transaction in simulated milliseconds; 0 for none. */
  limits: { statement: number; lock: number } | undefined;
  lastUsed = 0;
  /** Whether the last transaction was rolled back. */
  isRolledBack = false;
  /** Simulated times that were sent to the server, in epoch milliseconds. NaN if they must be sent again. */
  #clocks = { transaction: Number.NaN, statement: Number.NaN };

  constructor(gate: Gate, client: string, onEnd: (error: Error) => void) {
    this.#gate = gate;
    this.client = client;
    this.onEnd = onEnd;
  }

  run(statement: Statement): Later<Result> {
    return this.#gate.run(this, statement);
  }

  /** Sends a statement to the server. If the statement may use the time, it sends the simulated time first. */
  async send({ text: given, name, values }: Statement): Promise<Result> {
    // Statements about processes call the clock of the machine in pg_catalog. It is simulated as well.
    const text = given.replace(MACHINE_CLOCK, 'public.$1(');
    const { cluster, world } = this.#gate.options;
    const { client } = this.backend!;
    const now = Math.floor(world.wallClock());
    const isInTransaction = this.transaction !== undefined;
    const transaction = isInTransaction ? this.#clocks.transaction : now;
    const isNeeded = isInTransaction ? USES_CLOCK.test(text) : !TIMELESS.test(text) || USES_TIME.test(text);
    if (isNeeded && (this.#clocks.statement !== now || this.#clocks.transaction !== transaction)) {
      this.#clocks = { transaction, statement: now };
      const times = [transaction, now].map((time) => new Date(time).toISOString());
      const set = client.query({ name: 'simulated-time', text: SET_TIMES, values: times });
      // The transaction has failed, and accepts no statement that sets the time.
      set.catch(() => {
        this.#clocks.statement = Number.NaN;
      });
    }
    const begin = BEGIN.exec(text);
    if (begin) {
      this.limits = limitsOf(text);
      return client.query(begin[0]);
    }
    if (name === undefined) return client.query(text, values as unknown[]);
    return client.query({ name: cluster.nameOf({ name, text }), text, values: values as unknown[] });
  }

  /** Notes the effect of a statement on the transaction of the session. @param result undefined after an error */
  note(statement: Statement, result: Result | undefined): void {
    const { text } = statement;
    const { transaction } = this;
    if (result) noteStatement(this.#gate.options.trace, this.client, { statement, result });
    if (!transaction) {
      if (result && BEGIN.test(text)) this.#begin();
      return;
    }
    if (!result) return;
    if (result.command === 'COMMIT') {
      transaction.commit(this.#gate.effects);
      this.#forgetTransaction();
    } else if (result.command === 'ROLLBACK' && !/^rollback to/i.test(text)) this.rolledBack();
    else {
      // A rollback to a savepoint also reverts the time of the statement.
      if (/^rollback to/i.test(text)) this.#clocks.statement = Number.NaN;
      transaction.note(statement, result);
    }
  }

  #begin(): void {
    const { trace } = this.#gate.options;
    const id = this.#gate.nextTransaction();
    this.isRolledBack = false;
    this.transaction = new Transaction({ id, client: this.client, trace });
    this.#watchIdle(this.transaction);
  }

  rolledBack(): void {
    this.isRolledBack ||= this.transaction !== undefined;
    this.transaction?.rollback();
    this.#forgetTransaction();
  }

  #forgetTransaction(): void {
    this.transaction = undefined;
    this.limits = undefined;
    this.#clocks = { transaction: Number.NaN, statement: Number.NaN };
  }

  /** Ends the session if its transaction runs no statement for `idleTimeout`. */
  #watchIdle(transaction: Transaction): void {
    const { world, trace, idleTimeout } = this.#gate.options;
    world.schedule(Math.max(1, this.lastUsed + idleTimeout - world.now), () => {
      if (this.transaction !== transaction || this.ending) return;
      if (this.running) this.lastUsed = world.now;
      if (world.now - this.lastUsed < idleTimeout) return this.#watchIdle(transaction);
      trace.note('idle transaction ended', { tx: transaction.id, client: this.client });
      const text = 'terminating connection due to idle-in-transaction timeout';
      this.#gate.end(this, new GateError('25P03', text, 'FATAL'));
      return undefined;
    });
  }

  /** Returns the server process to the cluster, for the next session. */
  async leave(): Promise<void> {
    const { cluster } = this.#gate.options;
    const backend = this.backend!;
    this.backend = undefined;
    await backend.client.query('rollback').catch(() => {});
    await backend.client.query({ name: 'unlock-all', text: 'select pg_advisory_unlock_all()' });
    cluster.give(backend);
  }
}

const BEGIN = /^\s*begin(?: isolation level [a-z ]+?)?(?: read only)?(?=;|$)/i;

/** Matches calls of clock functions with the schema pg_catalog, which the functions of the simulation cannot hide. */
const MACHINE_CLOCK = /\bpg_catalog\.(now|(?:clock|statement|transaction)_timestamp)\(/g;

/** Statements that do not need the time of the transaction, unless they match USES_TIME. */
const TIMELESS = /^\s*(?:select|commit|rollback|savepoint|release)\b/i;
const USES_TIME = /\bnow\(\)|_timestamp\(\)|ensure_/i;
/** Functions with a time that changes within a transaction. */
const USES_CLOCK = /\b(?:clock|statement)_timestamp\(\)/i;

function limitsOf(text: string): { statement: number; lock: number } {
  const limitOf = (name: string) => Number(new RegExp(`${name} = (\\d+)`).exec(text)?.[1] ?? 0);
  return { statement: limitOf('statement_timeout'), lock: limitOf('lock_timeout') };
}

/** Resolves when the promise resolves, or after real milliseconds. */
function endedWithin(promise: Promise<unknown>, milliseconds: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    void promise.then(() => {
      clearTimeout(timer);
      resolve();
    });
  });
}
