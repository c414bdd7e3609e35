import { newId } from '../../src/platform/ids.ts';
import { withTimeout } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import type { Pool } from '../../src/store/database.ts';
import { beginAttempts, type EndedAttempts, endAttempts } from '../../src/store/job-attempts.ts';
import { NO_POISON, type Poison } from './apply.ts';
import type { Delivery } from './open.ts';

/** Number of processes that an object may end, while it is applied alone, before it is set aside. */
const MAX_ENDED = 2;

/** The reason of the dead letter of an object that was set aside. */
const ENDED_THE_PROCESS = `ended the process: ${MAX_ENDED} worker processes ended unexpectedly while they applied this object alone. Their log has the cause. Fix it, then replay the dead letter`;

/**
 * Maximum milliseconds until an attempt is recorded or removed; while an object waits for this, a transaction is open.
 * A batch does not fail because an attempt could not be recorded.
 */
const RECORD_MS = { envelope: 5000, object: 1000 };

type Recorded = keyof typeof RECORD_MS;

/** Records the attempt at an object. @returns the reason by object id if the object ended processes repeatedly */
type BeginObject = (objectId: string) => Promise<Poison>;

/**
 * Finds objects that end the worker processes that apply them. A lane is watched after a process ended in it: each
 * envelope of the lane has a row in Postgres while it is applied. An envelope with a row of another process is a
 * suspect. Its objects are applied one at a time, each with a row of its own. See docs/adr/0010.
 */
export class Attempts {
  readonly #pool: Pool;
  readonly #processId: string;
  readonly #log: Log;
  /** Ids of the envelopes that have a row of this process. */
  readonly #begun = new Set<string>();
  /** Ids of the envelopes that have a row of another process. */
  readonly #suspects = new Set<string>();
  /** Completion of the latest attempt at a single object. */
  #previous: Promise<void> = Promise.resolve();

  constructor({ pool, processId = newId(), log }: AttemptsOptions) {
    this.#pool = pool;
    this.#processId = processId;
    this.#log = log;
  }

  /** Records attempts at the watched envelopes, and finds the suspects among them. Never rejects. */
  async begin(deliveries: Delivery[]): Promise<void> {
    const ids = new Set<string>();
    for (const { id, isWatched } of deliveries) if (isWatched && !this.#begun.has(id)) ids.add(id);
    if (ids.size === 0) return;
    const ended = await this.#begin('envelope', [...ids]);
    if (!ended) return;
    for (const id of ids) this.#begun.add(id);
    for (const id of ended.keys()) this.#suspects.add(id);
    if (ended.size > 0)
      this.#log.warn(
        { envelopes: [...ended.keys()] },
        'a process ended while it applied these envelopes; applying their objects one at a time',
      );
  }

  /** Whether the objects of an envelope are to be applied one at a time. */
  isSuspect(envelope: string): boolean {
    return this.#suspects.has(envelope);
  }

  /** Removes the attempts at envelopes that have taken effect. */
  end(envelopes: string[]): void {
    const ids = envelopes.filter((id) => this.#begun.delete(id));
    if (ids.length === 0) return;
    for (const id of ids) this.#suspects.delete(id);
    void this.#end('envelope', ids, 'all');
  }

  /**
   * Runs a transaction about one object. One such transaction runs at a time in this process: if the process ends, only
   * its object has a row.
   */
  async alone<Result>(transaction: (begin: BeginObject) => Promise<Result>): Promise<Result> {
    const before = this.#previous;
    let release = () => {};
    this.#previous = new Promise((resolve) => {
      release = resolve;
    });
    await before;
    let chosen: string | undefined;
    const begin: BeginObject = async (objectId) => {
      chosen = objectId;
      const ended = (await this.#begin('object', [objectId]))?.get(objectId) ?? 0;
      return ended >= MAX_ENDED ? new Map([[objectId, ENDED_THE_PROCESS]]) : NO_POISON;
    };
    const end = (whose: 'own' | 'all') => chosen === undefined || this.#end('object', [chosen], whose);
    try {
      const result = await transaction(begin);
      await end('all');
      return result;
    } catch (error) {
      await end('own');
      throw error;
    } finally {
      release();
    }
  }

  async #begin(kind: Recorded, ids: string[]): Promise<EndedAttempts | undefined> {
    const begun = withTimeout(RECORD_MS[kind], beginAttempts(this.#pool, { kind, ids }, this.#processId));
    return begun.catch(
      (error) =>
        void this.#log.warn(
          { err: error, kind },
          'attempt could not be recorded; continuing without a record',
        ),
    );
  }

  /** Removes attempts. A row that could not be removed is harmless: its envelope or object is not read again. */
  async #end(kind: Recorded, ids: string[], whose: 'own' | 'all'): Promise<void> {
    const ended = endAttempts(this.#pool, { kind, ids }, { processId: this.#processId, whose });
    await withTimeout(RECORD_MS[kind], ended).catch((error) =>
      this.#log.debug({ err: error, kind }, 'record of an attempt could not be removed'),
    );
  }
}

interface AttemptsOptions {
  pool: Pool;
  /** UUID of this run of the process; a new one by default. */
  processId?: string | undefined;
  log: Log;
}
