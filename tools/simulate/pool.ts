import type { Database, Effect, TransactionState } from './database.ts';
import { Channel, ConnectionLost, type Later, type Link } from './link.ts';
import type { Host } from './world.ts';

/** Durations and failures of the database. */
export interface DatabasePace {
  /** Milliseconds to load and write the user of an object. */
  perObject(workspaceId: string): number;
  /** Returns the error with which an object fails in the database, or that it ends the process. Undefined for a valid object. */
  refuses(objectId: string): { code: string; message: string } | 'ends the process' | undefined;
}

/** The connections of a process to the simulated database. Replaces a pool of `pg`. */
export class SimulatedPool {
  readonly options = { max: 6 };
  readonly database: Database;
  readonly pace: DatabasePace;
  readonly host: Host;
  readonly #link: Link;
  #free = this.options.max;
  readonly #waiting: (() => void)[] = [];

  constructor({
    database,
    pace,
    host,
    link,
  }: { database: Database; pace: DatabasePace; host: Host; link: Link }) {
    this.database = database;
    this.pace = pace;
    this.host = host;
    this.#link = link;
    host.onEnd(() => host.world.schedule(host.random.between(0, 20), () => database.disconnect(host.name)));
  }

  send<Answer>(run: () => Answer | Later<Answer>, channel?: Channel): Promise<Answer> {
    return this.#link.send(run, channel);
  }

  async begin(limits: { statement: number; lock: number } | undefined): Promise<SimulatedTransaction> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      const state = await this.send(() => this.database.begin(this.host.name, limits));
      return new SimulatedTransaction(this, state);
    } catch (error) {
      this.release();
      throw error;
    }
  }

  release(): void {
    const next = this.#waiting.shift();
    if (next) next();
    else this.#free++;
  }
}

/** A transaction of a process. */
export class SimulatedTransaction {
  readonly pool: SimulatedPool;
  readonly state: TransactionState;
  #isBroken = false;
  readonly #channel = new Channel();

  constructor(pool: SimulatedPool, state: TransactionState) {
    this.pool = pool;
    this.state = state;
  }

  /** Sends a statement. */
  async send<Answer>(run: (state: TransactionState) => Answer | Later<Answer>): Promise<Answer> {
    const { database } = this.pool;
    try {
      return await this.pool.send(() => database.use(this.state, () => run(this.state)), this.#channel);
    } catch (error) {
      if (error instanceof ConnectionLost) this.#break();
      throw error;
    }
  }

  /** Marks the connection as lost. The server rolls the transaction back up to 20 ms later. */
  #break(): void {
    if (this.#isBroken) return;
    this.#isBroken = true;
    const { database, host } = this.pool;
    host.world.schedule(host.random.between(0, 20), () => database.rollback(this.state));
  }

  /** Runs a statement without values: a savepoint, a setting, or the probe of a healthy store. */
  query(text: string): Promise<{ rows: never[] }> {
    const { database } = this.pool;
    return this.pool.send(() => {
      if (this.state.hasEnded) throw new Error('Connection terminated unexpectedly');
      if (text.startsWith('rollback to savepoint')) this.state.lastUsed = this.pool.host.world.now;
      else database.use(this.state, () => {});
      database.savepoint(this.state, text);
      return { rows: [] };
    }, this.#channel);
  }

  /** Records the effects of objects in one statement. */
  record(effects: readonly Effect[]): Promise<void> {
    const { database, pace, host } = this.pool;
    return this.send((state) => {
      for (const { objectId, kind } of effects) {
        const refusal = kind === 'applied' ? pace.refuses(objectId) : undefined;
        if (!refusal) continue;
        database.spoil(state);
        if (refusal === 'ends the process') {
          host.kill();
          return;
        }
        throw Object.assign(new Error(refusal.message), { code: refusal.code, severity: 'ERROR' });
      }
      state.effects.push(...effects);
    });
  }

  commit(): Promise<void> {
    return this.pool
      .send(() => this.pool.database.commit(this.state), this.#channel)
      .catch((error) => {
        if (error instanceof ConnectionLost) {
          this.pool.host.world.note('commit without an answer', {
            tx: this.state.id,
            isCommitted: this.state.isCommitted,
          });
          this.#break();
        }
        throw error;
      });
  }

  async rollback(): Promise<void> {
    if (this.#isBroken) return;
    await this.pool
      .send(() => this.pool.database.rollback(this.state), this.#channel)
      .catch(() => this.#break());
  }
}
