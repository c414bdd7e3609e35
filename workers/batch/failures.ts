import { withTimeout } from '../../src/platform/lifecycle.ts';
import type { Connection, Pool } from '../../src/store/database.ts';
import { causeOf } from '../../src/store/error-cause.ts';
import { insertDeadLetters } from '../../src/store/failed-objects.ts';
import { recordOutcomes } from '../../src/store/outcomes.ts';
import { inTransaction } from '../../src/store/transactions.ts';
import { toFailed } from './open.ts';
import type { WorkItem } from './work-item.ts';

/** Number of failures in a row after which a single object is blamed. */
export const TRIES = 3;

/** The same limit for errors that can happen to any object: conflicts with other lanes, or a broken connection. */
const TRIES_OF_CHANCE = 10;

/** Returns whether a statement of this release cannot run: an operator has to act; only objects that need it wait. */
export function isOurStatement(error: unknown): boolean {
  return causeOf(error) === 'statement';
}

/**
 * Returns after how many failures in a row, while Postgres answers other transactions, a single object is blamed. The
 * failures of larger batches with the object count. Infinity means that it is never blamed.
 */
export function triesOf(error: unknown): number {
  switch (causeOf(error)) {
    case 'object':
    case 'limit':
      return TRIES;
    case 'chance':
    case 'conflict':
      return TRIES_OF_CHANCE;
    case 'statement':
    case 'infrastructure':
      return Number.POSITIVE_INFINITY;
  }
}

/** Returns whether an object that fails alone with this error, after `triesOf` failures, becomes a dead letter. */
export function countsAgainstObject(error: unknown): boolean {
  return ['object', 'limit', 'chance'].includes(causeOf(error));
}

/** How an error blames the objects, if the transaction can continue without them. */
type Fault =
  /** Postgres refuses one of the objects, or Penstock's own code fails on it. */
  | 'refused'
  /** Time or memory runs out. Postgres may be slow at the moment; if the error recurs, the objects are to blame. */
  | 'lasting';

/** Returns how an error blames the objects; undefined for another cause, possible chance or a lost connection. */
export function blameOf(error: unknown): Fault | undefined {
  const cause = causeOf(error);
  if (cause === 'object') return 'refused';
  const { severity } = error as { severity?: unknown };
  return cause === 'limit' && severity === 'ERROR' ? 'lasting' : undefined;
}

/** Returns the reason why an object cannot be applied, for an operator. */
export function reasonOf(error: unknown): string {
  return String((error as Error).message ?? error);
}

/** Returns the signature of an error, which is equal for recurring errors. */
export function signatureOf(error: unknown): string {
  const { code, message } = error as { code?: unknown; message?: unknown };
  return String(code ?? message);
}

/** An object that cannot be applied, with the reason as one sentence for an operator. */
export interface RefusedObject {
  item: WorkItem;
  reason: string;
}

/**
 * Writes the dead letters of objects that cannot be applied, at their place in the order, so that a later delete finds
 * them. For operations whose caller waits for the outcome, it records the outcome too.
 */
export async function recordRefused(tx: Connection, refused: RefusedObject[]): Promise<void> {
  await insertDeadLetters(
    tx,
    refused.map(({ item, reason }) => toFailed({ ...item, id: item.object.id }, reason)),
  );
  const awaited = refused.filter(({ item }) => isAwaited(item));
  if (awaited.length === 0) return;
  await recordOutcomes(
    tx,
    awaited.map(({ item, reason }) => ({
      ...{ workspaceId: item.workspaceId, objectId: item.object.id, error: reason },
    })),
  );
}

function isAwaited({ object: { kind } }: WorkItem): boolean {
  return kind === 'external_id_rename' || kind === 'external_id_remove';
}

/** Maximum milliseconds that a healthy Postgres needs to commit a minimal transaction. */
const WELL_MS = 1000;

/** Returns whether Postgres commits a minimal transaction. Reading the transaction id makes it a write transaction. */
export async function isWell(pool: Pool): Promise<boolean> {
  const commit = inTransaction(pool, (tx) => tx.query('select pg_current_xact_id()'));
  return withTimeout(WELL_MS, commit).then(
    () => true,
    () => false,
  );
}
