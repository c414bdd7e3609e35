import { Registry } from 'prom-client';
import { createAccept } from '../../../src/operations/track/accept.ts';
import type { Log } from '../../../src/platform/log.ts';
import type { Json } from '../../../src/profile/json.ts';
import { replayDeadLetters } from '../../../src/queue/dead-letters.ts';
import type { LaneStore } from '../../../src/queue/lane-store.ts';
import type { Pool } from '../../../src/store/database.ts';
import { watchHorizon } from '../../../src/store/horizon.ts';
import type { Destination } from '../../../src/streams/destination.ts';
import { DeliveryError } from '../../../src/streams/destination.ts';
import { JobAttempts } from '../../../workers/jobs/job-attempts.ts';
import { StreamDeliveries } from '../../../workers/streams/deliver.ts';
import { createStreamMetrics } from '../../../workers/streams/metrics.ts';
import { openSource } from '../../../workers/streams/source.ts';
import { startStreams, startStreamUpkeep } from '../../../workers/streams/start.ts';
import { createYielding } from '../../../workers/streams/yielding.ts';
import { startTombstoneCleanup } from '../../../workers/upkeep/tombstones.ts';
import { startUpkeep } from '../../../workers/upkeep/upkeep.ts';
import { startWorker, type WorkerOptions } from './main.ts';

export * from './main.ts';

const accepts = createAccept('service_id', { longStrings: 'refuse' });

/** Validates an object of `/users/track` as web does. @throws {Error} if the object is refused */
export function accept(
  kind: 'events' | 'purchases' | 'attributes',
  wire: Record<string, Json>,
  index: number,
) {
  const accepted = accepts[kind](wire, index, {
    ...{ workspaceId: '', requestId: '', now: Date.now() },
    ...{ hasGroup: () => true, channelOf: () => 'email', isBlocked: () => false },
  });
  if (!('object' in accepted)) throw new Error(`the simulation sent ${JSON.stringify(accepted)}`);
  return accepted.object;
}

/** Starts a worker with its cleanup of merged and deleted profiles, and its maintenance. */
export function startWholeWorker(options: WorkerOptions) {
  const { pool, laneStore, lanes, log } = options;
  const settling = startTombstoneCleanup(pool, log);
  const worker = startWorker({ ...options, onTombstones: settling.wake });
  const config = { LANES: lanes, LEDGER_DAYS: 7, AUDIT_DAYS: 30, SHARDS: 1 };
  void startUpkeep({ laneStore, pool, objects: () => 0, config: config as never, log }).catch(() => {});
  return {
    ...worker,
    /** Replays dead letters as an operator does. */
    replay: (ids: readonly string[]) => replay({ laneStore, pool, lanes, log }, ids),
  };
}

async function replay(
  { laneStore, pool, lanes, log }: { laneStore: LaneStore; pool: Pool; lanes: number; log: Log },
  ids: readonly string[],
): Promise<void> {
  const producer = laneStore.createProducer({ timeout: 2000, log });
  const actor = { kind: 'operator', name: 'simulation', via: 'command_line' } as const;
  await replayDeadLetters({ database: { pool }, producer, lanes, actor }, ids);
}

export interface SyncOptions {
  pool: Pool;
  processId: string;
  log: Log;
  /** Opens the receiver of a destination. */
  open(destinationId: string): Destination;
}

/** Starts the part of `sync` that delivers streams. */
export function startSync({ pool, processId, log, open }: SyncOptions): void {
  const registry = new Registry();
  const metrics = createStreamMetrics(registry);
  const horizon = watchHorizon(pool);
  const yielding = createYielding({
    ...{ areWorkersBehind: () => false, processorWait: () => 0, maxMs: 60_000 },
    onWait() {},
  });
  const deliveries = new StreamDeliveries({
    ...{ pool, log, metrics },
    reading: { source: openSource(pool, 'service_id'), horizon: horizon.horizon, yielding },
    open: ({ id }) => open(id),
    attempts: new JobAttempts({ pool, processId, log, registry }),
  });
  startStreams({ pool, horizon, deliveries, yielding, log });
  startStreamUpkeep({ pool, metrics, log, days: 7 });
}

export const deliveryError = (message: string): Error => new DeliveryError(message);
