import { setTimeout as sleep } from 'node:timers/promises';
import type { Log } from '../src/log.ts';
import type { Pool } from '../src/store/database.ts';
import type { Delivery } from './contract.ts';
import type { WorkerMetrics } from './metrics.ts';
import type { Outcome } from './outcome.ts';
import { runBatch } from './run.ts';

const FIRST_RETRY_MS = 20;
const LONGEST_RETRY_MS = 1000;

/** At once; a third one finds both cores busy, or the disk. */
const MAX_TRANSACTIONS = 2;

/**
 * Objects that are worth a transaction of their own beside one that is running: with as many, a transaction's
 * round trips and its COMMIT cost little, and this process works on one while Postgres works on the other. Fewer
 * wait for it to end, and share the next one.
 */
const LARGE = 200;

interface Held {
  deliveries: Delivery[];
  done(): void;
}

/**
 * Collects the envelopes that this process holds, a run of each lane, and applies all that are there in one
 * transaction. No timer: what arrives during a transaction waits for the next, unless it is large enough for one of
 * its own beside it.
 *
 * A transient error is retried here, with the envelopes in hand: giving a job back would put it behind later
 * ones.
 */
export function createCoalescer(
  pool: Pool,
  metrics: WorkerMetrics,
  onDeadLetters: (ids: string[]) => void,
  onRemoved: () => void,
  log: Log,
) {
  let held: Held[] = [];
  let transactions = 0;
  // One connection stays for everything else that this process asks the store.
  const most = Math.min(MAX_TRANSACTIONS, Math.max(1, pool.options.max - 1));
  const abandon = new AbortController();

  /** Resolves when the envelopes have taken effect; never rejects. After `abandon` it may stay open. */
  function apply(...deliveries: Delivery[]): Promise<void> {
    return new Promise((done) => {
      held.push({ deliveries, done });
      if (transactions === 0 || (transactions < most && isLarge(held))) void runAll();
    });
  }

  async function runAll(): Promise<void> {
    transactions++;
    while (held.length > 0 && !abandon.signal.aborted) {
      const batch = held;
      held = [];
      const outcome = await retrying(batch.flatMap(({ deliveries }) => deliveries));
      if (!outcome) break;
      for (const { done } of batch) done();
    }
    transactions--;
  }

  /** Undefined: abandoned. */
  async function retrying(deliveries: Delivery[]): Promise<Outcome | undefined> {
    for (let wait = FIRST_RETRY_MS; !abandon.signal.aborted; wait = Math.min(wait * 2, LONGEST_RETRY_MS)) {
      const started = performance.now();
      try {
        const outcome = await runBatch(pool, deliveries, log);
        report(deliveries, outcome, performance.now() - started);
        return outcome;
      } catch (error) {
        metrics.retries.inc();
        log.warn(
          { err: error, envelopes: deliveries.map(({ id }) => id), retry_in_ms: wait },
          'not applied yet',
        );
        await sleep(wait, undefined, { signal: abandon.signal }).catch(() => {});
      }
    }
    return undefined;
  }

  function report(deliveries: Delivery[], outcome: Outcome, milliseconds: number): void {
    const { objects, deadLetters } = outcome.kind === 'applied' ? outcome : { objects: 0, deadLetters: [] };
    metrics.batches.inc({ outcome: outcome.kind });
    metrics.applied.inc(objects);
    metrics.deadLetters.inc(deadLetters.length);
    metrics.applySeconds.observe(milliseconds / 1000);
    metrics.batchObjects.observe(objects);
    log.info(
      {
        outcome: outcome.kind,
        jobs: deliveries.map(({ id }) => id),
        lanes: deliveries.map(({ lane }) => lane),
        request_ids: deliveries.flatMap(requestIds),
        applied: objects,
        dead_letters: deadLetters.length,
        ms: Math.round(milliseconds * 10) / 10,
      },
      'job',
    );
    if (deadLetters.length > 0) onDeadLetters(deadLetters);
    if (outcome.kind === 'applied' && outcome.removed) onRemoved();
  }

  return {
    apply,
    /** Stops retrying: what is not applied is delivered again to another worker. */
    abandon: () => abandon.abort(),
  };
}

function isLarge(held: Held[]): boolean {
  let objects = 0;
  // Of whatever a lane held: an envelope of another release may have a shape of its own.
  for (const { deliveries } of held)
    for (const { envelope } of deliveries) objects += envelope?.objects?.length ?? 0;
  return objects >= LARGE;
}

/** Of whatever a lane held: an envelope of another release may have a shape of its own. */
function requestIds({ envelope }: Delivery): string[] {
  return Array.isArray(envelope?.requests) ? envelope.requests.map((request) => request?.request_id) : [];
}

export type Coalescer = ReturnType<typeof createCoalescer>;
