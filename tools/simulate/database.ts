import { Later } from './link.ts';
import type { Trace } from './trace.ts';
import type { World } from './world.ts';

/** An object that took effect or became a dead letter. */
export interface Effect {
  objectId: string;
  kind: 'applied' | 'dead letter';
}

/** The row of an envelope in the ledger. */
interface LedgerRow {
  owner: TransactionState | undefined;
  /** Transactions that wait for the end of the owner. */
  waiting: (() => void)[];
}

/** An open transaction at the server. */
export interface TransactionState {
  id: number;
  /** Name of the process. */
  client: string;
  claimed: Set<string>;
  released: Set<string>;
  cut: Map<string, number[] | undefined>;
  effects: Effect[];
  savepoints: { name: string; effects: number }[];
  /** Whether a statement has failed. The transaction then accepts only a rollback. */
  isSpoilt: boolean;
  hasEnded: boolean;
  isCommitted: boolean;
  lastUsed: number;
  /** Whether a statement waits for another transaction. */
  isWaiting: boolean;
  /** Timeouts in milliseconds. */
  limits: { statement: number; lock: number } | undefined;
}

/** An error as Postgres reports it. */
export class DatabaseError extends Error {
  override name = 'DatabaseError';
  readonly code: string;
  readonly severity = 'ERROR';

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

export interface DatabaseOptions {
  /** Milliseconds without a statement after which the server ends a transaction. */
  idleTimeout: number;
  trace: Trace;
}

/**
 * The tables of the workers, in memory: the ledger with its row locks, cut envelopes, fences and attempts. `effects` lists
 * the objects in the order of the commits.
 */
export class Database {
  readonly #world: World;
  readonly #options: DatabaseOptions;
  readonly #ledger = new Map<string, LedgerRow>();
  readonly #cut = new Map<string, number[]>();
  readonly #arrivals = new Map<string, Set<number>>();
  readonly #attempts = new Map<string, Set<string>>();
  readonly #open = new Set<TransactionState>();
  readonly effects: Effect[] = [];
  #transactions = 0;

  constructor(world: World, options: DatabaseOptions) {
    this.#world = world;
    this.#options = options;
  }

  begin(client: string, limits: { statement: number; lock: number } | undefined): TransactionState {
    const tx: TransactionState = {
      id: ++this.#transactions,
      client,
      claimed: new Set(),
      released: new Set(),
      cut: new Map(),
      effects: [],
      savepoints: [],
      isSpoilt: false,
      hasEnded: false,
      isCommitted: false,
      lastUsed: this.#world.now,
      isWaiting: false,
      limits,
    };
    this.#open.add(tx);
    this.#watch(tx);
    return tx;
  }

  /** Ends the transaction after the idle timeout. */
  #watch(tx: TransactionState): void {
    const { idleTimeout } = this.#options;
    this.#world.schedule(Math.max(1, tx.lastUsed + idleTimeout - this.#world.now), () => {
      if (tx.hasEnded) return;
      if (tx.isWaiting) tx.lastUsed = this.#world.now;
      if (this.#world.now - tx.lastUsed < idleTimeout) return this.#watch(tx);
      this.#options.trace.note('idle transaction ended', { tx: tx.id, client: tx.client });
      this.rollback(tx);
      return undefined;
    });
  }

  /** Runs a statement. @throws {DatabaseError} if an earlier statement has failed, or if the transaction has ended */
  use<Answer>(tx: TransactionState, statement: () => Answer): Answer {
    if (tx.hasEnded)
      throw new DatabaseError('25P03', 'terminating connection due to idle-in-transaction timeout');
    tx.lastUsed = this.#world.now;
    if (tx.isSpoilt)
      throw new DatabaseError(
        '25P02',
        'current transaction is aborted, commands ignored until end of transaction block',
      );
    return statement();
  }

  spoil(tx: TransactionState): void {
    tx.isSpoilt = true;
  }

  /** Claims envelopes in the order of their ids. Waits while another open transaction has claimed an envelope. */
  claim(tx: TransactionState, ids: readonly string[]): Later<string[]> {
    const claimed: string[] = [];
    const outcome = new Later<string[]>();
    const rest = [...ids];
    const next = (): void => {
      while (rest.length > 0) {
        if (tx.hasEnded) {
          outcome.fail(new Error('Connection terminated unexpectedly'));
          return;
        }
        const id = rest[0]!;
        const row = this.#ledger.get(id);
        if (row?.owner && row.owner !== tx) {
          this.#waitFor(row, tx, { next, outcome });
          return;
        }
        rest.shift();
        tx.lastUsed = this.#world.now;
        if (row) continue;
        this.#ledger.set(id, { owner: tx, waiting: [] });
        tx.claimed.add(id);
        claimed.push(id);
      }
      this.#options.trace.note('claimed', { tx: tx.id, by: tx.client, claimed, asked: ids });
      outcome.answer(claimed);
    };
    next();
    return outcome;
  }

  /** Waits until the owner of the row ends, up to the lock timeout. */
  #waitFor(
    row: LedgerRow,
    tx: TransactionState,
    { next, outcome }: { next(): void; outcome: Later<string[]> },
  ): void {
    let isOver = false;
    row.waiting.push(() => {
      if (isOver) return;
      isOver = true;
      tx.isWaiting = false;
      tx.lastUsed = this.#world.now;
      next();
    });
    tx.isWaiting = true;
    this.#options.trace.note('waits for a claim', { tx: tx.id, by: tx.client, owner: row.owner?.client });
    this.#world.schedule(tx.limits?.lock ?? 60_000, () => {
      if (isOver) return;
      isOver = true;
      tx.isWaiting = false;
      tx.lastUsed = this.#world.now;
      this.spoil(tx);
      this.#options.trace.note('lock timeout', { tx: tx.id, by: tx.client });
      outcome.fail(new DatabaseError('55P03', 'canceling statement due to lock timeout'));
    });
  }

  left(ids: readonly string[]): { id: string; left: number[] }[] {
    return ids.flatMap((id) => {
      const left = this.#cut.get(id);
      return left ? [{ id, left }] : [];
    });
  }

  commit(tx: TransactionState): void {
    if (tx.hasEnded) throw new Error('Connection terminated unexpectedly');
    if (tx.isSpoilt) {
      this.rollback(tx);
      return;
    }
    for (const [id, left] of tx.cut) {
      if (left) this.#cut.set(id, left);
      else this.#cut.delete(id);
    }
    this.effects.push(...tx.effects);
    tx.isCommitted = true;
    this.#options.trace.note('committed', {
      tx: tx.id,
      by: tx.client,
      objects: tx.effects.map(({ objectId, kind }) =>
        kind === 'applied' ? objectId : `${objectId} (${kind})`,
      ),
      envelopes: [...tx.claimed].filter((id) => !tx.released.has(id)),
      cut: [...tx.cut].flatMap(([id, left]) => (left ? [id] : [])),
      continued: [...tx.cut].flatMap(([id, left]) => (left ? [] : [id])),
    });
    this.#end(tx, (id) => !tx.released.has(id));
  }

  rollback(tx: TransactionState): void {
    if (tx.hasEnded) return;
    this.#options.trace.note('rolled back', { tx: tx.id, by: tx.client, claimed: [...tx.claimed] });
    this.#end(tx, () => false);
  }

  #end(tx: TransactionState, keeps: (id: string) => boolean): void {
    tx.hasEnded = true;
    this.#open.delete(tx);
    const wakes: (() => void)[] = [];
    for (const id of tx.claimed) {
      const row = this.#ledger.get(id);
      if (!row || row.owner !== tx) continue;
      if (keeps(id)) row.owner = undefined;
      else this.#ledger.delete(id);
      wakes.push(...row.waiting);
    }
    for (const wake of wakes) wake();
  }

  /** Rolls back the open transactions of a client that disconnected. */
  disconnect(client: string): void {
    for (const tx of [...this.#open]) if (tx.client === client) this.rollback(tx);
  }

  savepoint(tx: TransactionState, text: string): void {
    const [, action, name] = /^(savepoint|release savepoint|rollback to savepoint) (\w+)$/.exec(text) ?? [];
    if (!action || !name) return;
    const index = tx.savepoints.findLastIndex((savepoint) => savepoint.name === name);
    if (action === 'savepoint') tx.savepoints.push({ name, effects: tx.effects.length });
    else if (action === 'release savepoint') tx.savepoints.splice(index);
    else {
      tx.effects.length = tx.savepoints[index]!.effects;
      tx.savepoints.length = index + 1;
      tx.isSpoilt = false;
    }
  }

  isApplied(id: string): boolean {
    const row = this.#ledger.get(id);
    return row !== undefined && row.owner === undefined;
  }

  arrive(fence: string, lane: number, by: string): boolean {
    if (this.isApplied(fence)) {
      this.#options.trace.note('arrived at a fence that is passed', { fence, lane, by });
      return true;
    }
    const arrived = this.#arrivals.get(fence) ?? new Set();
    if (arrived.has(lane)) return false;
    this.#arrivals.set(fence, arrived.add(lane));
    this.#options.trace.note('arrived', { fence, lane, by });
    return false;
  }

  arrivals(fence: string): number[] {
    return [...(this.#arrivals.get(fence) ?? [])];
  }

  openFence(fence: string): void {
    this.#arrivals.delete(fence);
  }

  beginAttempts(kind: string, ids: readonly string[], processId: string): Map<string, number> {
    const ended = new Map<string, number>();
    for (const id of ids) {
      const key = `${kind} ${id}`;
      const begun = this.#attempts.get(key) ?? new Set();
      const others = [...begun].filter((one) => one !== processId).length;
      if (others > 0) {
        ended.set(id, others);
        this.#options.trace.note('earlier attempt found', { kind, id, others });
      }
      this.#attempts.set(key, begun.add(processId));
    }
    return ended;
  }

  endAttempts(kind: string, ids: readonly string[], isEnded: (processId: string) => boolean): void {
    for (const id of ids) {
      const key = `${kind} ${id}`;
      const left = [...(this.#attempts.get(key) ?? [])].filter((one) => !isEnded(one));
      if (left.length === 0) this.#attempts.delete(key);
      else this.#attempts.set(key, new Set(left));
    }
  }
}
