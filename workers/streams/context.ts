import type { Log } from '../../src/platform/log.ts';
import type { Pool } from '../../src/store/database.ts';
import type { LeasedDestination } from '../../src/store/stream-leases.ts';
import type { Destination, FileDestination } from '../../src/streams/destination.ts';
import type { StreamMetrics } from './metrics.ts';
import type { Source } from './source.ts';
import type { Yielding } from './yielding.ts';

/** For how long nobody else delivers. Longer than a batch takes; files keep theirs. */
export const LEASE_MS = 30_000;

/** A destination that has got everything is looked at so often, and given back after so many looks. */
export const LOOK_MS = 100;
export const LOOKS = 20;

/** What delivering works with. */
export interface StreamContext {
  pool: Pool;
  /** Ids of the log up to it are decided. */
  horizon(): string;
  /** @throws {DeliveryError} */
  open(leased: LeasedDestination): Destination | FileDestination;
  source: Source;
  yielding: Yielding;
  metrics: StreamMetrics;
  log: Log;
  /** Milliseconds that one destination may keep its place while others wait for one; 10 s unless told. */
  turnMs?: number;
  /** Milliseconds after which the lease of a file is renewed; a third of it unless told. */
  keepMs?: number;
}
