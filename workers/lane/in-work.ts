import type { Lease } from '../../src/queue/lane-store.ts';
import type { Delivery } from '../batch/open.ts';

/**
 * Transactions' worth of envelopes that a lane has handed in at most. Where one workspace's take long, those of the others
 * come and go; its own stay, and more of them would be held in vain.
 */
const MOST_IN_HAND = 4;

/** An envelope that is applied with the job in work, and still waits in the lane. */
export interface Held {
  delivery: Delivery;
  /** Id of its job. */
  job: string;
  /** See `sizeOf` of workers/lane/prefetch.ts. */
  size: number;
}

/** What of a lane is being applied: the envelope of the job in work, and those behind it that are applied with it. */
export class InWork {
  /** Of the first envelope. */
  readonly lease: Lease;
  /** The first envelope, until it has taken effect. */
  #first: Delivery | undefined;
  /** Those behind it that may not have taken effect yet, in the order of the lane. */
  #behind: readonly Held[];
  /** Each of what was handed in and has not taken effect; more may come meanwhile. */
  readonly #handedIn = new Set<Promise<void>>();

  /** @param first its envelope */
  constructor(lease: Lease, first: Delivery, behind: readonly Held[]) {
    this.lease = lease;
    this.#first = first;
    this.#behind = behind;
  }

  /** What was handed in, as far as it may not have taken effect yet. */
  deliveries(): Delivery[] {
    const behind = this.#behind.map(({ delivery }) => delivery);
    return this.#first ? [this.#first, ...behind] : behind;
  }

  /** Ids of the jobs that still wait in the lane, in its order. */
  jobs(): string[] {
    return this.#behind.map(({ job }) => job);
  }

  /** Whether it would be in vain to hand in more. */
  isFull(): boolean {
    return this.#behind.reduce((all, { size }) => all + size, 0) >= MOST_IN_HAND;
  }

  /**
   * Leaves out what has taken effect.
   *
   * @param pending ids of the envelopes that have not
   * @returns ids of the jobs of those that have
   */
  keep(pending: ReadonlySet<string>): string[] {
    const done = this.#behind.filter(({ delivery }) => !pending.has(delivery.id));
    if (this.#first && !pending.has(this.#first.id)) this.#first = undefined;
    this.#behind = this.#behind.filter(({ delivery }) => pending.has(delivery.id));
    return done.map(({ job }) => job);
  }

  /** These are handed in as well, behind the others. */
  add(more: readonly Held[]): void {
    this.#behind = [...this.#behind, ...more];
  }

  /** @param applied of what is handed in; never rejects */
  handIn(applied: Promise<void>): Promise<void> {
    this.#handedIn.add(applied);
    void applied.then(() => this.#handedIn.delete(applied));
    return applied;
  }

  /** Resolves when what is handed in by now has taken effect. */
  handedInSoFar(): Promise<unknown> {
    return Promise.all(this.#handedIn);
  }

  /** Resolves when all has taken effect, also what is handed in meanwhile. */
  async applied(): Promise<void> {
    while (this.#handedIn.size > 0) await Promise.all(this.#handedIn);
  }
}
