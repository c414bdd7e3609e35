import type { Pool } from '../../src/store/database.ts';
import type { Lease } from '../../src/store/leases.ts';
import {
  advanceDestination,
  type LeasedDestination,
  renewDestination,
} from '../../src/store/stream-leases.ts';
import type { StreamMetrics } from './metrics.ts';
import type { Cursor } from './read.ts';

/**
 * Milliseconds for which a process holds the lease of a destination. A batch takes less, and files renew
 * their lease.
 */
export const LEASE_MS = 30_000;

/** The cursor of a leased destination. Each write extends the lease. */
export class LeasedCursor {
  /** The destination as it was leased. */
  readonly leased: LeasedDestination;
  /** Work on the delivery stops when its signal aborts. */
  readonly lease: Lease;
  readonly #pool: Pool;
  readonly #metrics: Pick<StreamMetrics, 'delivered'>;
  readonly #onProgress: () => Promise<void>;

  /** @param parts.onProgress called when a delivery was recorded in the cursor */
  constructor(
    leased: LeasedDestination,
    lease: Lease,
    parts: { pool: Pool; metrics: Pick<StreamMetrics, 'delivered'>; onProgress(): Promise<void> },
  ) {
    this.leased = leased;
    this.lease = lease;
    this.#pool = parts.pool;
    this.#metrics = parts.metrics;
    this.#onProgress = parts.onProgress;
  }

  /** Counts delivered messages in the metrics. */
  count(messages: number): void {
    this.#metrics.delivered(this.leased, messages);
  }

  /** Records the end of a file before the file is stored. @throws {LeaseLost} */
  async plan(file: Cursor & { hour: Date }): Promise<void> {
    const plan = { milliseconds: LEASE_MS, file };
    await this.lease.extend(() => renewDestination(this.#pool, this.leased, plan));
  }

  /** Moves the cursor past delivered messages. @throws {LeaseLost} */
  async advance(end: Cursor, delivered: number): Promise<void> {
    const moved = { ...end, delivered, milliseconds: LEASE_MS };
    await this.lease.extend(() => advanceDestination(this.#pool, this.leased, moved));
    await this.#onProgress();
  }
}

/** Returns the fields that identify a stream in a line of the log. */
export const fieldsOf = ({ name, id, workspace }: Pick<LeasedDestination, 'name' | 'id' | 'workspace'>) => ({
  stream: name,
  destination: id,
  workspace,
});
