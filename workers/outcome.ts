/** How a batch, or an attempt at one, ended. */
export type Outcome =
  /**
   * `objects`: those that took effect; `deadLetters`: ids of those that cannot; `removed`: whether profiles were
   * merged or deleted.
   */
  | { kind: 'applied'; objects: number; deadLetters: string[]; removed: boolean; seconds: number }
  /** Every envelope had been applied before. */
  | { kind: 'skipped' };

/** What an error of the store or of our own code means for the objects in hand. */
export type ErrorClass =
  /** The same objects can be applied later: a lost connection, a deadlock, a schema that is not there yet. */
  | 'transient'
  /** One of the objects is what the store refuses; it will be refused again. */
  | 'permanent';

/**
 * SQLSTATE classes that blame the data: feature not supported for a value, data exception, integrity, program
 * limit, and an exception that a trigger raises.
 */
const PERMANENT = ['0A', '22', '23', '54', 'P0'];

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
  const { code, constraint } = error as { code?: unknown; constraint?: string };
  if (typeof code !== 'string' || code.startsWith('ERR_'))
    return isMistake(error) ? 'permanent' : 'transient';
  if (constraint !== undefined && RACES.has(constraint)) return 'transient';
  return code.length === 5 && PERMANENT.includes(code.slice(0, 2)) ? 'permanent' : 'transient';
}

function isMistake(error: unknown): boolean {
  return (
    error instanceof TypeError ||
    error instanceof RangeError ||
    error instanceof SyntaxError ||
    error instanceof ReferenceError
  );
}
