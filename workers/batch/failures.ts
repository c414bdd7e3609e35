import { within } from '../../src/platform/lifecycle.ts';
import type { Connection, Pool } from '../../src/store/database.ts';
import { insertDeadLetters } from '../../src/store/failed-objects.ts';
import { recordOutcomes } from '../../src/store/outcomes.ts';
import { inTransaction } from '../../src/store/transactions.ts';
import { toFailed } from './open.ts';
import type { WorkItem } from './work-item.ts';

/** What an error of the store or of our own code means for the objects in hand. */
export type ErrorClass =
  /** The same objects can be applied later: a lost connection, a deadlock, a schema that is not there yet. */
  | 'transient'
  /** One of the objects is what the store refuses; it will be refused again. */
  | 'permanent';

/**
 * SQLSTATE classes that blame the data: cardinality, data exception, integrity, program limit, and an exception that a
 * trigger raises.
 */
const PERMANENT = ['21', '22', '23', '54', 'P0'];

/**
 * Of a statement that the store cannot carry out as it is written, whatever it is given. A distributed Postgres finds
 * no plan, or a migration has changed the shape of its rows. No value of ours is refused like that.
 */
const UNSUPPORTED = '0A';

const UNIQUE_VIOLATION = '23505';

/** A unique violation on these means that another lane was faster; the next try finds its row. */
const RACES = new Set([
  'profiles_external_id',
  'profiles_pkey',
  'user_aliases_pkey',
  'user_aliases_profile',
  'deprecated_external_ids_pkey',
]);

/**
 * Reads the SQLSTATE. An error without one, or with a code of Node's, is ours if it is a mistake of the program, else
 * the connection's.
 */
export function classify(error: unknown): ErrorClass {
  const { code } = error as { code?: unknown };
  if (typeof code !== 'string' || code.startsWith('ERR_'))
    return isMistake(error) ? 'permanent' : 'transient';
  if (isLostRace(error)) return 'transient';
  return code.length === 5 && PERMANENT.includes(code.slice(0, 2)) ? 'permanent' : 'transient';
}

/** Milliseconds before a transaction that has failed is tried again: the first wait, and the longest. */
export const FIRST_RETRY_MS = 20;

export const LONGEST_RETRY_MS = 1000;

/** Times that an error may come back before it is the objects' fault, unless they are known sooner. */
export const TRIES = 3;

/** As many where chance has its part: other lanes, or a connection that breaks. */
const TRIES_OF_CHANCE = 10;

/**
 * What is nobody's fault, however often it comes back. A server that goes down, comes up, is full, lacks a setting, or
 * is not the primary any more. Tables that are not there yet, a lock that somebody holds, a statement of ours.
 */
const AWAY = [
  UNSUPPORTED,
  '08',
  '28',
  '3D',
  '53100',
  '53300',
  '57P01',
  '57P02',
  '57P03',
  '57P04',
  '58',
  '25006',
  '42',
  '55',
];

/** Whether a statement of ours is to blame: a new release has to mend it, and somebody has to know of it. */
export function isOurStatement(error: unknown): boolean {
  const { code, message } = error as { code?: unknown; message?: string };
  const isStale = message?.includes('cached plan') === true;
  return typeof code === 'string' && code.startsWith(UNSUPPORTED) && !isStale;
}

/**
 * How often a transient error may come back the same way, while the store answers others, before the objects in hand
 * are tried apart. Infinity: for ever.
 */
export function triesOf(error: unknown): number {
  const { code, message } = error as { code?: unknown; message?: string };
  if (typeof code !== 'string') return TRIES_OF_CHANCE;
  // Two phases find no room to be noted: Postgres calls that its memory.
  if (message?.includes('prepared transactions')) return Number.POSITIVE_INFINITY;
  // A code of Node's: the network's.
  if (code.length !== 5 || code.startsWith('E')) return Number.POSITIVE_INFINITY;
  if (AWAY.some((away) => code.startsWith(away))) return Number.POSITIVE_INFINITY;
  return code.startsWith('40') || isLostRace(error) ? TRIES_OF_CHANCE : TRIES;
}

/** What a distributed Postgres puts behind the name of an index of a shard. */
const SHARD = /_\d{6,}$/;

/**
 * A coordinator passes on what a node says, but not the field that names the index. The message names it, in whatever
 * language, and quotes no value.
 */
const RACE_OF_SHARD = new RegExp(String.raw`\b(?:${[...RACES].join('|')})_\d{6,}\b`);

/** An index names itself also where it has no room for an entry: that is no race. */
function isLostRace(error: unknown): boolean {
  const { code, constraint, message } = error as { code?: unknown; constraint?: string; message?: string };
  if (code !== UNIQUE_VIOLATION) return false;
  if (constraint !== undefined) return RACES.has(constraint.replace(SHARD, ''));
  return message !== undefined && RACE_OF_SHARD.test(message);
}

/** What an error says of the objects in hand, while the transaction can go on without them. */
export type Fault =
  /** The store does not take one of them, or our own code fails on it. */
  | 'refused'
  /** Something runs out with them: time, or memory. It may be the store's day; what comes back is theirs. */
  | 'lasting';

/** Undefined: nobody's fault, or chance, or the connection is lost. */
export function blameOf(error: unknown): Fault | undefined {
  if (classify(error) === 'permanent') return 'refused';
  const { severity } = error as { severity?: unknown };
  return triesOf(error) === TRIES && severity === 'ERROR' ? 'lasting' : undefined;
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

function isMistake(error: unknown): boolean {
  return (
    error instanceof TypeError ||
    error instanceof RangeError ||
    error instanceof SyntaxError ||
    error instanceof ReferenceError
  );
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
