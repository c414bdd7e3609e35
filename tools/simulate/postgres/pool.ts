import { EventEmitter } from 'node:events';
import type { Effect } from '../database.ts';
import { Channel, ConnectionLost, Later, type Link } from '../link.ts';
import type { DatabasePace } from '../pool.ts';
import type { Host } from '../world.ts';
import { type Gate, GateError, type Result, type Session, type Statement } from './gate.ts';

export interface GatedPoolOptions {
  gate: Gate;
  link: Link;
  pace: DatabasePace;
  host: Host;
  /** Maximum number of connections. */
  max: number;
}

/** A pool of a simulated process, with the part of the interface of `pg.Pool` that Penstock uses. */
export class GatedPool extends EventEmitter {
  readonly options: { max: number };
  readonly gated: GatedPoolOptions;
  readonly #clients = new Set<GatedClient>();
  readonly #idle: GatedClient[] = [];
  readonly #waiting: ((client: Promise<GatedClient>) => void)[] = [];

  constructor(gated: GatedPoolOptions) {
    super();
    this.gated = gated;
    this.options = { max: gated.max };
    const { link, host } = gated;
    link.onCut(() => {
      for (const client of this.#clients)
        client.lose(new ConnectionLost('Connection terminated unexpectedly'));
    });
    host.onEnd(() => {
      for (const client of this.#clients) client.endSessionLater();
    });
  }

  get pace(): DatabasePace {
    return this.gated.pace;
  }

  connect(): Promise<GatedClient> {
    for (let idle = this.#idle.pop(); idle; idle = this.#idle.pop())
      if (!idle.isBroken) return Promise.resolve(idle);
    if (this.#clients.size < this.options.max) return this.#open();
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  async #open(): Promise<GatedClient> {
    const client = new GatedClient(this);
    this.#clients.add(client);
    try {
      await client.connect();
      return client;
    } catch (error) {
      this.#clients.delete(client);
      this.#openForWaiting();
      throw error;
    }
  }

  /** Opens a connection for the caller that has waited longest, if the maximum is not reached. */
  #openForWaiting(): void {
    if (this.#waiting.length > 0 && this.#clients.size < this.options.max)
      this.#waiting.shift()!(this.#open());
  }

  giveBack(client: GatedClient, error: unknown): void {
    if (error || client.isBroken) {
      client.lose(error instanceof Error ? error : new Error('Connection terminated'));
      this.#clients.delete(client);
      this.#openForWaiting();
      return;
    }
    const next = this.#waiting.shift();
    if (next) next(Promise.resolve(client));
    else this.#idle.push(client);
  }

  async query(statement: string | Statement, values?: unknown[]): Promise<Result> {
    const client = await this.connect();
    let failure: unknown;
    try {
      return await client.query(statement, values);
    } catch (error) {
      failure = client.isBroken ? error : undefined;
      throw error;
    } finally {
      client.release(failure as Error);
    }
  }

  async end(): Promise<void> {}
}

/** A connection of a simulated process. */
export class GatedClient extends EventEmitter {
  readonly pool: GatedPool;
  /** The part of the connection of `pg` that Penstock uses to write several statements at once. */
  readonly connection = { stream: { cork() {}, uncork() {}, setTimeout() {}, writableLength: 0 } };
  readonly #channel = new Channel();
  #session: Session | undefined;
  #lost: Error | undefined;

  constructor(pool: GatedPool) {
    super();
    this.pool = pool;
    this.on('error', () => {});
  }

  get isBroken(): boolean {
    return this.#lost !== undefined;
  }

  async connect(): Promise<void> {
    const { gate, link, host } = this.pool.gated;
    await link.send(() => {
      this.#session = gate.open(host.name, (error) => {
        // The server closes the connection. The process notices it later.
        host.schedule(host.random.between(0, 1), () => this.lose(error));
      });
      if (this.#lost || !host.isAlive) this.endSessionLater();
    }, this.#channel);
  }

  query(statement: string | Statement, values?: unknown[]): Promise<Result> {
    const given: Statement = typeof statement === 'string' ? { text: statement, values } : statement;
    const isCommit = given.text === 'commit';
    const session = this.#session!;
    const transaction = isCommit ? () => session.transaction : undefined;
    let committing: { id: number } | undefined;
    const sent = this.#send(() => {
      committing = transaction?.();
      return session.run({ ...given, values: given.values ?? values });
    });
    if (!isCommit) return sent;
    return sent.catch((error) => {
      if (error instanceof ConnectionLost)
        this.pool.gated.host.world.note('commit without an answer', {
          tx: committing?.id,
          isCommitted: committing !== undefined && session.transaction === undefined && !session.isRolledBack,
        });
      throw error;
    });
  }

  #send<Answer>(run: () => Answer | Later<Answer>): Promise<Answer> {
    if (this.#lost)
      return Promise.reject(new Error('Client has encountered a connection error and is not queryable'));
    return this.pool.gated.link.send(run, this.#channel);
  }

  /** Records objects that take effect if the transaction commits. An object that the database refuses fails it. */
  record(effects: readonly Effect[]): Promise<void> {
    const { pace, host } = this.pool.gated;
    const session = this.#session!;
    return this.#send(() => {
      for (const { objectId, kind } of effects) {
        const refusal = kind === 'applied' ? pace.refuses(objectId) : undefined;
        if (!refusal) continue;
        if (refusal === 'ends the process') {
          host.kill();
          return new Later<void>();
        }
        return refused(session, refusal);
      }
      session.transaction?.record(effects);
      return undefined;
    });
  }

  release(error?: unknown): void {
    this.pool.giveBack(this, error);
  }

  /** Marks the connection as lost. The server ends the session later. */
  lose(error: Error): void {
    if (this.#lost) return;
    this.#lost = error;
    this.endSessionLater();
    this.emit('error', error);
  }

  /** Ends the session at a moment that the seed decides. Sometimes the server notices much later that the process is gone. */
  endSessionLater(): void {
    const session = this.#session;
    if (!session) return;
    const { gate, host } = this.pool.gated;
    const isLate = host.random.chance(0.1);
    const delay = host.random.between(0, isLate ? 1500 : 20);
    host.world.schedule(delay, () => gate.end(session));
  }
}

/** Lets a statement fail in the transaction, with the error that Postgres would report for the object. */
function refused(session: Session, { code, message }: { code: string; message: string }): Later<void> {
  const later = new Later<void>();
  const raise = `do $$ begin raise exception using errcode = '${code}', message = '${message}'; end $$`;
  session.run({ text: raise }).onOutcome((outcome) => {
    // If the transaction has failed before, Postgres reports another error, which is kept.
    later.fail('error' in outcome ? outcome.error : new GateError(code, message));
  });
  return later;
}
