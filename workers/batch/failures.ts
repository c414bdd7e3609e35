import { within } from '../../src/platform/lifecycle.ts';
import type { Connection, Pool } from '../../src/store/database.ts';
import { causeOf } from '../../src/store/error-cause.ts';
import { insertDeadLetters } from '../../src/store/failed-objects.ts';
import { recordOutcomes } from '../../src/store/outcomes.ts';
import { inTransaction } from '../../src/store/transactions.ts';
import { toFailed } from './open.ts';
import type { WorkItem } from './work-item.ts';

/** Milliseconds before a transaction that has failed is tried again: the first wait, and the longest. */
export const FIRST_RETRY_MS = 20;

export const LONGEST_RETRY_MS = 1000;

/** Times that an error may come back before it is the objects' fault, unless they are known sooner. */
export const TRIES = 3;

/** As many where chance has its part: other lanes, or a connection that breaks. */
const TRIES_OF_CHANCE = 10;

/** Whether a statement of this release cannot run: an operator has to act, and only the lanes that need it wait. */
export function isOurStatement(error: unknown): boolean {
  return causeOf(error) === 'statement';
}

/**
 * Counts how often an error may come back the same way, while the store answers others, before the objects in hand are
 * tried apart. Infinity: they are retried together.
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

/** Whether an object that fails alone, as often as `triesOf` allows, becomes a dead letter for it. */
export function countsAgainstObject(error: unknown): boolean {
  return ['object', 'limit', 'chance'].includes(causeOf(error));
}

/** What an error says of the objects in hand, while the transaction can go on without them. */
export type Fault =
  /** The store does not take one of them, or our own code fails on it. */
  | 'refused'
  /** Something runs out with them: time, or memory. It may be the store's day; what comes back is theirs. */
  | 'lasting';

/** Undefined: no object's fault, or chance, or the connection is lost. */
export function blameOf(error: unknown): Fault | undefined {
  const cause = causeOf(error);
  if (cause === 'object') return 'refused';
  const { severity } = error as { severity?: unknown };
  return cause === 'limit' && severity === 'ERROR' ? 'lasting' : undefined;
}

/** Why an object cannot be applied, for a person. */
export function reasonOf(error: unknown): string {
  return String((error as Error).message ?? error);
}

/** What tells whether an error has come back the same way. */
export function signatureOf(error: unknown): string {
  const { code, message } = error as { code?: unknown; message?: unknown };
  return String(code ?? message);
}

/** An object that cannot be applied, and why: one sentence for a person. */
export interface RefusedObject {
  item: WorkItem;
  reason: string;
}

/**
 * Writes down objects that cannot be applied, at their place in the order: a delete that follows finds their dead
 * letters. Whoever waits for the outcome is told.
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

/** Milliseconds in which a store that is well commits the smallest transaction there is. */
const WELL_MS = 1000;

/** How often something has failed in the same way, one time after the other. */
export interface Failed {
  times: number;
  signature: string | undefined;
}

/**
 * Counts how something fails: an error counts when it is the one before again, and the store is well beside it.
 *
 * @param before what has been counted by then
 */
export function createFailures(pool: Pool, before: Failed = { times: 0, signature: undefined }) {
  let { times, signature } = before;

  return {
    /** @returns times in a row; 0: it is nobody's fault */
    async count(error: unknown): Promise<number> {
      if (signatureOf(error) !== signature) times = 0;
      signature = signatureOf(error);
      if (triesOf(error) === Number.POSITIVE_INFINITY || !(await isWell(pool))) return 0;
      times++;
      return times;
    },

    /** The objects in hand are others now, and have failed so many times the same way. */
    goOnFrom(sofar: number): void {
      times = sofar;
    },

    sofar: (): Failed => ({ times, signature }),
  };
}

/** Whether the store commits what is smallest; a number of a transaction makes it write. */
export async function isWell(pool: Pool): Promise<boolean> {
  const commit = inTransaction(pool, (tx) => tx.query('select pg_current_xact_id()'));
  return within(WELL_MS, commit).then(
    () => true,
    () => false,
  );
}
