import type { EnvelopeRequest, ObjectKind } from '../../src/jobs/envelope.ts';
import type { Log } from '../../src/platform/log.ts';
import type { LaneCount, UsageRow } from '../../src/store/counters.ts';
import { isDamagedStore } from '../../src/store/error-cause.ts';
import type { WorkerMetrics } from '../metrics.ts';
import { ByWorkspace } from './by-workspace.ts';
import { isOurStatement } from './failures.ts';
import type { Delivery } from './open.ts';
import type { BatchResult } from './parts.ts';
import type { WorkItem } from './work-item.ts';

interface EndedBatch {
  deliveries: Delivery[];
  result: BatchResult;
  milliseconds: number;
}

/** Logs a finished transaction and updates the metrics. */
export function reportBatch(
  { deliveries, result, milliseconds }: EndedBatch,
  { metrics, log }: { metrics: WorkerMetrics; log: Log },
): void {
  const { objects, deadLetters } = result.kind === 'applied' ? result : { objects: 0, deadLetters: [] };
  metrics.batches.inc({ outcome: result.kind });
  metrics.applied.inc(objects);
  const left = result.kind === 'applied' ? result.left : undefined;
  metrics.noteBatch({
    lanes: deliveries.map(({ lane }) => lane),
    applied: objects,
    finished:
      result.kind === 'applied'
        ? deliveries
            .filter(({ id }) => !left?.has(id))
            .map(({ lane, envelope }) => ({ lane, acceptedAt: acceptedAt(envelope) }))
        : [],
  });
  metrics.deadLetters.inc(deadLetters.length);
  metrics.applySeconds.observe(milliseconds / 1000);
  metrics.batchObjects.observe(objects);
  log.info(
    {
      outcome: result.kind,
      jobs: deliveries.map(({ id }) => id),
      lanes: deliveries.map(({ lane }) => lane),
      request_ids: deliveries.flatMap(requestIds),
      applied: objects,
      dead_letters: deadLetters.length,
      ms: Math.round(milliseconds * 10) / 10,
      ...result.ids,
    },
    'job',
  );
}

/** Writes one line to the log for an attempt that failed and will be repeated. */
export function reportRetry(log: Log, { error, envelopes }: { error: unknown; envelopes: string[] }): void {
  const line = { err: error, envelopes };
  if (isOurStatement(error)) log.error(line, 'not applied yet: Postgres rejected a statement of Penstock');
  else if (isDamagedStore(error)) log.error(line, 'not applied yet: Postgres read a damaged page');
  else log.warn(line, 'not applied yet');
}

/** Returns the acceptance time in epoch ms; undefined for replays, accepted long ago, and for unknown formats. */
function acceptedAt(envelope: Delivery['envelope'] | undefined): number | undefined {
  if (envelope?.replay || !Array.isArray(envelope?.requests)) return undefined;
  const time = Date.parse(envelope.requests[0]?.accepted_at ?? '');
  return Number.isNaN(time) ? undefined : time;
}

const requestIdOf = (request: EnvelopeRequest): string => request?.request_id;

/** Returns the request ids of an envelope. Another release may have written it in another shape. */
function requestIds({ envelope }: Delivery): string[] {
  return Array.isArray(envelope?.requests) ? envelope.requests.map(requestIdOf) : [];
}

/**
 * Counts the objects that took effect, with one row per workspace and lane. A dead letter counts only when it is
 * replayed and takes effect, so every object counts once, even if it was retried.
 */
export function tallyUsage(applied: WorkItem[]): UsageRow[] {
  const rows = new ByWorkspace<UsageRow, number>();
  let row: UsageRow | undefined;
  for (const { workspaceId, lane, object } of applied) {
    // Objects of a request are adjacent, so the last row usually fits.
    if (row?.workspaceId !== workspaceId || row.lane !== lane) {
      row = rows.get(workspaceId, lane) ?? nothingUsed(workspaceId, lane);
      rows.set(workspaceId, lane, row);
    }
    row[usageOf(object.kind)]++;
  }
  return [...rows.values()];
}

function nothingUsed(workspaceId: string, lane: number): UsageRow {
  return { workspaceId, lane, attributes: 0, events: 0, purchases: 0, identity: 0, subscriptions: 0 };
}

function usageOf(kind: ObjectKind): Exclude<keyof UsageRow, 'workspaceId' | 'lane'> {
  if (kind === 'attributes' || kind === 'events' || kind === 'purchases') return kind;
  return kind === 'group_state' || kind === 'email_change' ? 'subscriptions' : 'identity';
}

/** Returns the counter increments of a batch by lane. Its time and its dead letters are counted on its first lane. */
export function tallyLanes(
  deliveries: Delivery[],
  {
    applied,
    namedElsewhere,
    deadLetters,
    seconds,
    cut,
  }: {
    applied: WorkItem[];
    namedElsewhere: WorkItem[];
    deadLetters: number;
    seconds: number;
    /** Envelopes with remaining objects, by id. */
    cut: Pick<ReadonlyMap<string, unknown>, 'has'>;
  },
): LaneCount[] {
  const rows = new Map<number, LaneCount>();
  for (const { id, lane } of deliveries) {
    let row = rows.get(lane);
    if (!row) {
      row = { lane, envelopes: 0, objects: 0, deadLetters: 0, applySeconds: 0, namedElsewhere: 0 };
      rows.set(lane, row);
    }
    if (!cut.has(id)) row.envelopes++;
  }
  for (const { lane } of applied) rows.get(lane)!.objects++;
  for (const { lane } of namedElsewhere) rows.get(lane)!.namedElsewhere++;
  const [first] = rows.values();
  first!.deadLetters = deadLetters;
  first!.applySeconds = seconds;
  return [...rows.values()];
}

/** Returns the span attributes of a transaction. */
export function describeBatch(result: BatchResult): Record<string, string | number> {
  if (result.kind === 'skipped') return { 'penstock.outcome': 'skipped' };
  return {
    'penstock.outcome': result.left ? 'cut' : 'applied',
    'penstock.objects.applied': result.objects,
    'penstock.dead_letters': result.deadLetters.length,
  };
}
