/**
 * Cause of an error of Postgres, of the connection to it or of our own code while an object was being applied.
 * Only the first three can make it a dead letter: docs/adr/0096-the-sqlstate-decides-what-counts.md.
 */
export type Cause =
  /** The object: Postgres refuses its data, or our own code fails on it. It will fail again. */
  | 'object'
  /** A limit of time or memory. Three failures in a row while Postgres is well, the last of the object alone, count against it. */
  | 'limit'
  /** A lost connection, a lost race for a unique key, or an error without a code. As `limit`, after ten failures. */
  | 'chance'
  /** Another transaction: a deadlock or a serialization failure. Trying fewer objects at once helps. */
  | 'conflict'
  /** A statement that this release cannot run on this database. An operator has to act; the object waits. */
  | 'statement'
  /** A server, a pooler, a network or a session. The object waits. */
  | 'infrastructure';

/**
 * Every SQLSTATE that has a cause other than `infrastructure`, by prefix; the longest prefix decides. A code that is
 * not listed never makes an object a dead letter.
 */
const causes: Readonly<Record<string, Exclude<Cause, 'chance' | 'infrastructure'>>> = {
  '21': 'object', // cardinality_violation
  '22': 'object', // data_exception
  '23': 'object', // integrity_constraint_violation; see RACES
  '54': 'object', // program_limit_exceeded, such as a jsonb that is too large
  P0: 'object', // raised by a trigger or a function
  '57014': 'limit', // query_canceled: statement_timeout
  '25P03': 'limit', // idle_in_transaction_session_timeout: our own work on the object took too long
  '25P04': 'limit', // transaction_timeout
  '53200': 'limit', // out_of_memory
  '53400': 'limit', // configuration_limit_exceeded, such as temp_file_limit
  '40': 'conflict', // serialization_failure, deadlock_detected
  '0A': 'statement', // feature_not_supported, such as a statement that Citus cannot plan
  '42': 'statement', // syntax error, undefined table, missing privilege
};

/** Codes inside a listed class that a pooler or a session causes. */
const EXCEPTIONS: readonly string[] = [
  '42P05', // duplicate_prepared_statement
];

const UNIQUE_VIOLATION = '23505';

/** Indexes whose unique violation means that another lane was faster. The next attempt finds its row. */
const RACES = new Set([
  'profiles_external_id',
  'profiles_pkey',
  'user_aliases_pkey',
  'user_aliases_profile',
  'deprecated_external_ids_pkey',
]);

/** Matches the suffix that a distributed Postgres appends to index names of shards. */
const SHARD = /_\d{6,}$/;

/**
 * Matches such an index of a shard in a message. A coordinator passes on the message of a node, but not the field
 * with the index. The message has the index name in every language, and quotes no value.
 */
const RACE_OF_SHARD = new RegExp(String.raw`\b(?:${[...RACES].join('|')})_\d{6,}\b`);

/** Matches errors of `pg` and PgBouncer for a connection that was lost in use. The current object may be the cause. */
const LOST = /connection terminated unexpectedly|server conn crashed/i;

/** Matches errors for a connection that could not be opened, or was lost before use. `pg` gives them no code. */
const UNREACHABLE = /connection terminated|timeout exceeded|read timeout|not queryable|connection error/i;

/** Errors of Prisma that have a counterpart here: https://www.prisma.io/docs/orm/reference/error-reference */
const PRISMA: Readonly<Record<string, Cause>> = {
  P2024: 'infrastructure',
  P2028: 'infrastructure',
  P2034: 'conflict',
};

interface AnyError {
  code?: unknown;
  message?: string;
  constraint?: string;
}

/** Classifies an error of a statement, of a connection to Postgres, or of our own code. */
export function causeOf(error: unknown): Cause {
  const { code, message = '' } = (error ?? {}) as AnyError;
  if (LOST.test(message)) return 'chance';
  const sqlstate = sqlstateOf(error);
  if (sqlstate !== undefined) return causeOfState(sqlstate, error as AnyError);
  if (typeof code === 'string' && !code.startsWith('ERR_')) return PRISMA[code] ?? 'infrastructure';
  if (isMistake(error)) return 'object';
  return typeof code === 'string' || UNREACHABLE.test(message) ? 'infrastructure' : 'chance';
}

function causeOfState(sqlstate: string, error: AnyError): Cause {
  if (isStalePlan(error) || EXCEPTIONS.includes(sqlstate)) return 'infrastructure';
  if (isLostRace(sqlstate, error)) return 'chance';
  // max_prepared_transactions is too small: Postgres reports that as memory.
  if (error.message?.includes('prepared transactions')) return 'infrastructure';
  return causes[sqlstate] ?? causes[sqlstate.slice(0, 2)] ?? 'infrastructure';
}

/** SQLSTATE of an error of Postgres, also where Prisma wraps it; undefined for any other error. */
export function sqlstateOf(error: unknown): string | undefined {
  const { code, meta, cause } = (error ?? {}) as {
    code?: unknown;
    meta?: { driverAdapterError?: { cause?: { originalCode?: unknown } } };
    cause?: { originalCode?: unknown };
  };
  const own = meta?.driverAdapterError?.cause?.originalCode ?? cause?.originalCode ?? code;
  const isState =
    typeof own === 'string' && /^[0-9A-Z]{5}$/.test(own) && !/^(E[A-Z]{4}|P[1-9]\d{3})$/.test(own);
  return isState ? own : undefined;
}

/** Returns whether Postgres could not be reached or did not respond, so that the same call may succeed soon. */
export function isPostgresUnavailable(error: unknown): boolean {
  const { code, message = '' } = (error ?? {}) as AnyError;
  if (LOST.test(message)) return true;
  if (sqlstateOf(error) !== undefined) {
    const cause = causeOf(error);
    return cause === 'infrastructure' || cause === 'conflict' || cause === 'limit';
  }
  if (typeof code === 'string' && (NETWORK.test(code) || Object.hasOwn(PRISMA, code))) return true;
  return UNREACHABLE.test(message) || HELD_UP.test(message);
}

/** Matches messages for a statement that another one blocked, because Prisma passes them on without their code. */
const HELD_UP =
  /canceling statement due to (?:statement|lock) timeout|canceling statement due to user request|deadlock detected/i;

/** Codes of Node and of Prisma for a server that cannot be reached. */
const NETWORK =
  /^(ECONN|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|EAI_AGAIN|P100[128]|P1017|UNPROVEN_SERVER)/;

/** Returns whether Postgres found a damaged page or index. Retries fail until an operator repairs the data. */
export function isDamagedStore(error: unknown): boolean {
  const state = sqlstateOf(error);
  return state === 'XX001' || state === 'XX002';
}

/** Returns whether a prepared statement has an outdated result type. A new connection fixes it. */
export function isStalePlan(error: unknown): boolean {
  const { code, message } = error as AnyError;
  return code === '0A000' && message?.includes('cached plan') === true;
}

/** Returns whether a prepared statement is missing or exists twice, because the server session has changed. */
export function isForeignSession(error: unknown): boolean {
  const { code } = (error ?? {}) as AnyError;
  return code === '26000' || code === '42P05';
}

/**
 * Returns whether another lane was faster. An index entry that is too large names the same index with another code,
 * and is not a race.
 */
function isLostRace(sqlstate: string, { constraint, message }: AnyError): boolean {
  if (sqlstate !== UNIQUE_VIOLATION) return false;
  if (constraint !== undefined) return RACES.has(constraint.replace(SHARD, ''));
  return message !== undefined && RACE_OF_SHARD.test(message);
}

function isMistake(error: unknown): boolean {
  return (
    error instanceof TypeError ||
    error instanceof RangeError ||
    error instanceof SyntaxError ||
    error instanceof ReferenceError
  );
}
