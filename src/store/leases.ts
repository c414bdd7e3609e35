import { randomUUID } from 'node:crypto';
import { type Poller, poll } from '../platform/poll.ts';
import { type LinkedSignal, linkSignals } from '../platform/time-limit.ts';
import type { Pool } from './database.ts';
import { isDistributed, WORKSPACES } from './distributed.ts';
import { withCitusForm } from './one-workspace.ts';

/** A table whose rows are leased: one process at a time works on a row, until the lease ends. */
interface LeaseTable {
  table: string;
  /** Column with the end of the lease, by the clock of Postgres. */
  until: string;
  /**
   * Column with the UUID of the lease. Absent: the end identifies the lease, which is then never extended, because
   * each later lease of the row has another end.
   */
  holder?: string;
  /** Whether a row without an end is free. By default, such a row has no work. */
  nullIsFree?: boolean;
  /** Maximum milliseconds until an end. A later end was written before the clock was set back, and counts as past. */
  maxMilliseconds?: number;
  /** SQL of the clock; by default the clock of the machine, which `penstock dev` does not move. */
  clock?: string;
}

/**
 * SQL of the leases of a table. A frozen process may wake up after another process has taken its lease, so each write
 * of a holder has the condition `isHeld` in the same statement.
 */
interface LeaseSql extends Pick<LeaseTable, 'table' | 'until'> {
  /** Condition that no process holds the row. */
  isFree: string;
  /** Value that identifies the lease of the row, as text. */
  lease: string;
  /** Condition that the row still has the lease in a parameter. */
  isHeld(lease: string): string;
  /** End of a lease that begins now. The parameter has its milliseconds; null gives null. */
  endAfter(milliseconds: string): string;
  /** Assignment that begins a lease. A table with a holder needs the parameter of the new lease. */
  take(milliseconds: string, lease?: string): string;
  /** Assignment that makes the holder's lease end so many milliseconds from now. */
  extend(milliseconds: string): string;
  /** Assignments that end a lease. The row is free immediately, or after the milliseconds in the parameter. */
  release(milliseconds?: string): string;
  /** Assignments that leave the row without lease and without end. */
  clear: string;
}

/** Returns the SQL of the leases of a table. */
export function leasesOf({
  table,
  until,
  holder,
  nullIsFree = false,
  maxMilliseconds,
  clock = 'pg_catalog.statement_timestamp()',
}: LeaseTable): LeaseSql {
  const end = `${table}.${until}`;
  // Microseconds since 1970. Citus returns only immutable functions of a row that it has changed, and the text of a
  // `timestamptz` is only stable.
  const microseconds = `(extract(epoch from ${end} - timestamptz 'epoch') * 1000000)::bigint`;
  const endOf = (lease: string) => `timestamptz 'epoch' + ${lease}::bigint * interval '1 microsecond'`;
  const endAfter = (milliseconds: string) => `${clock} + ${milliseconds}::integer * interval '1 millisecond'`;
  const free = [
    `${end} <= ${clock}`,
    ...(nullIsFree ? [`${end} is null`] : []),
    ...(maxMilliseconds ? [`${end} > ${endAfter(String(maxMilliseconds))}`] : []),
  ];
  const extend = (milliseconds: string) => `${until} = ${endAfter(milliseconds)}`;
  const clearHolder = holder ? `${holder} = null, ` : '';
  return {
    ...{ table, until },
    isFree: free.length === 1 ? free[0]! : `(${free.join(' or ')})`,
    lease: `${holder ? `${table}.${holder}` : microseconds}::text`,
    isHeld: (lease) => (holder ? `${table}.${holder} = ${lease}::uuid` : `${end} = ${endOf(lease)}`),
    endAfter,
    take: (milliseconds, lease) => `${holder ? `${holder} = ${lease}::uuid, ` : ''}${extend(milliseconds)}`,
    extend,
    release: (milliseconds) => clearHolder + (milliseconds ? extend(milliseconds) : `${until} = ${clock}`),
    clear: `${clearHolder}${until} = null`,
  };
}

/** Identifies a lease of a row that a workspace owns. */
export interface RowLease {
  /** UUID of the lease, which belongs to no earlier lease of the row, not even of the same process. */
  lease: string;
  workspaceId: string;
  id: string;
}

/** Condition that a row has its lease. The parameters $1 to $3 are `rowLeaseValues`. */
export const isHeldRow = ({ table, isHeld }: LeaseSql) =>
  `${table}.workspace_id = $2::uuid and ${table}.id = $3::uuid and ${isHeld('$1')}`;

export const rowLeaseValues = ({ lease, workspaceId, id }: RowLease) => [lease, workspaceId, id];

interface OldestRows {
  /** Name of the prepared statement. */
  name: string;
  /** SQL conditions on the columns of the row. The values of the caller are the parameters from $1. */
  where: string;
  /** Number of values of the caller. */
  values: number;
  /** SQL condition, beginning with `and`, that needs other tables of the workspace. */
  andWhere?: string;
  /** SQL order, the longest waiting row first. */
  order: string;
  /** Order of the rows of one workspace, for a distributed Postgres; by default `order`. */
  orderInWorkspace?: string;
  /** Maximum number of rows of one workspace at once, for a distributed Postgres; by default the limit. */
  perWorkspace?: number;
  /** Further SQL assignments, beginning with a comma. */
  set?: string;
  /** SQL joins of the free rows, which are named `free`. */
  join?: string;
  returning: string;
}

/** Statements that lease the free rows that have waited longest. */
interface TakeOldest {
  name: string;
  any: string;
  /** For a distributed Postgres: workspaces whose rows may be free, the longest waiting first. */
  workspaces: string;
  /** For a distributed Postgres: leases rows of one workspace. */
  inWorkspace: string;
  perWorkspace: number;
}

/** Returns the statements that lease the free rows that have waited longest, except rows that are locked. */
export function takeOldestOf(
  { table, until, isFree, take }: LeaseSql,
  { name, where, values, andWhere = '', order, returning, ...others }: OldestRows,
): TakeOldest {
  const { orderInWorkspace = order, perWorkspace = Number.POSITIVE_INFINITY, set = '', join = '' } = others;
  const parameter = (nth: number) => `$${values + nth}`;
  const statement = (own: string, inOrder: string) => `
  with free as (
    select ${table}.workspace_id, ${table}.id
    from ${table}
    where ${own} ${isFree} and ${where} ${andWhere}
    order by ${inOrder}
    limit ${parameter(3)}::integer
    for update skip locked
  )
  update ${table}
  set ${take(parameter(2), parameter(1))}${set}
  from free ${join}
  where ${table}.workspace_id = free.workspace_id and ${table}.id = free.id
  returning ${returning}`;
  return {
    ...{ name, perWorkspace },
    any: statement('', order),
    workspaces: `
  select ${table}.workspace_id as id
  from ${table}
  where ${isFree} and ${where}
  group by ${table}.workspace_id
  order by min(${table}.${until}) nulls first
  limit ${WORKSPACES}`,
    inWorkspace: withCitusForm(
      statement(`${table}.workspace_id = ${parameter(4)}::uuid and`, orderInWorkspace),
    ),
  };
}

interface WantedRows {
  /** Values of the caller, the first parameters of the statements. */
  values: unknown[];
  milliseconds: number;
  /** Maximum number of rows. */
  limit: number;
}

/** Leases up to `limit` free rows for some milliseconds. Rows that are leased together have the same lease. */
export async function takeOldest<Row extends object>(
  pool: Pool,
  statements: TakeOldest,
  { values, milliseconds, limit }: WantedRows,
): Promise<Row[]> {
  if (await isDistributed(pool)) return takeByWorkspace(pool, statements, { values, milliseconds, limit });
  const { rows } = await pool.query<Row>({
    ...{ name: statements.name, text: statements.any },
    values: [...values, randomUUID(), milliseconds, limit],
  });
  return rows;
}

async function takeByWorkspace<Row extends object>(
  pool: Pool,
  { workspaces, inWorkspace, perWorkspace }: TakeOldest,
  { values, milliseconds, limit }: WantedRows,
): Promise<Row[]> {
  const taken: Row[] = [];
  const { rows: waiting } = await pool.query<{ id: string }>(workspaces, values);
  for (const { id } of waiting) {
    if (taken.length >= limit) break;
    const most = Math.min(limit - taken.length, perWorkspace);
    const given = [...values, randomUUID(), milliseconds, most, id];
    taken.push(...(await pool.query<Row>({ text: inWorkspace, values: given })).rows);
  }
  return taken;
}

/** Thrown when a lease is lost. Another process may have the work, so this process must not change its state. */
export class LeaseLost extends Error {
  override name = 'LeaseLost';
}

interface LeaseOptions {
  /** Checks and extends the lease in the store. @returns false if the lease is lost */
  renew(): Promise<boolean>;
  /** Milliseconds after which a lease that is not extended ends. Absent: the lease ends with its session. */
  milliseconds?: number;
  /** Aborts when the process stops. */
  leaving?: AbortSignal;
  /** Returns the error of a lease that was not extended in time; by default a `LeaseLost`. */
  expired?(milliseconds: number): Error;
  /** Called each time that the lease was extended. */
  onExtended?(): void;
}

/**
 * A lease that this process holds, from its construction until `end`. The work under the lease follows `signal` and
 * stops when the lease is lost: a statement found that another process has it, or it was not extended in time.
 */
export class Lease {
  readonly #options: LeaseOptions;
  readonly #over = new AbortController();
  readonly #work: LinkedSignal;
  #timer: NodeJS.Timeout | undefined;
  #renewal: Poller | undefined;

  constructor(options: LeaseOptions) {
    this.#options = options;
    this.#work = linkSignals({ signals: [options.leaving, this.#over.signal] });
    this.#restart(performance.now());
  }

  /** Aborts when the lease is lost. */
  get over(): AbortSignal {
    return this.#over.signal;
  }

  /** Aborts when the lease is lost or the process stops. */
  get signal(): AbortSignal {
    return this.#work.signal;
  }

  /**
   * Runs a statement that checks the lease, and that extends it by the milliseconds of this lease.
   *
   * @param write returns a falsy value if the statement found that the lease is lost
   * @throws the reason of `over` if the lease is lost
   */
  async extend<T>(write: () => Promise<T>): Promise<NonNullable<T>> {
    this.over.throwIfAborted();
    const sentAt = performance.now();
    const written = await write();
    if (!written) this.lose(new LeaseLost('the lease is gone'));
    this.over.throwIfAborted();
    this.#restart(sentAt);
    this.#options.onExtended?.();
    return written!;
  }

  /** Checks and extends the lease in the store. @throws the reason of `over` if the lease is lost */
  async confirm(): Promise<void> {
    await this.extend(this.#options.renew);
  }

  /**
   * Confirms the lease every `every` milliseconds until its end.
   *
   * @param options `failed` gets the errors of the store. While `isStalled` returns true, the lease is not extended.
   */
  keep(
    every: number,
    { failed, isStalled = () => false }: { failed(error: unknown): void; isStalled?(): boolean },
  ): void {
    const check = async () => {
      if (!this.over.aborted && !isStalled()) await this.confirm();
    };
    this.#renewal = poll(every, check, (error) => {
      if (!this.over.aborted) failed(error);
    });
  }

  /** Ends the work under the lease because the lease is lost. Only the first reason counts. */
  lose(reason: Error): void {
    clearTimeout(this.#timer);
    if (!this.over.aborted) this.#over.abort(reason);
  }

  /** Stops the timers. Call it when the work has ended. It does not release the lease in the store. */
  async end(): Promise<void> {
    clearTimeout(this.#timer);
    this.#work.release();
    await this.#renewal?.stop();
    clearTimeout(this.#timer);
  }

  /** Waits for the end of the lease. Postgres counts from a later time than the time at which the statement was sent. */
  #restart(sentAt: number): void {
    const { milliseconds, expired = expiredAfter } = this.#options;
    if (milliseconds === undefined) return;
    clearTimeout(this.#timer);
    const left = sentAt + milliseconds - performance.now();
    this.#timer = setTimeout(() => this.lose(expired(milliseconds)), Math.max(0, left)).unref();
  }
}

const expiredAfter = (milliseconds: number) =>
  new LeaseLost(`the lease was not extended for ${milliseconds / 1000} s`);

/** An advisory lock. */
export interface AdvisoryLock {
  /** SQL expression of the lock's number, and its parameters. */
  number: string;
  values?: unknown[];
  /** Description of the work that the lock excludes, for the error message if the lock is lost. */
  excludes: string;
}

/**
 * The transaction is idle while `work` runs, without a time limit. It has no snapshot, so it does not hold
 * back VACUUM.
 */
const begin = 'begin; set local idle_in_transaction_session_timeout = 0';

/**
 * Runs `work` under a lease that is an advisory lock. The lock belongs to a transaction that does nothing else, so
 * that it also works through a pooler in transaction mode. It ends with the connection, and therefore with
 * the process, however the process ends. A lost connection is not reused.
 *
 * @returns undefined if another session holds the lock
 */
export async function withAdvisoryLock<T>(
  pool: Pool,
  { number, values = [], excludes }: AdvisoryLock,
  work: (lease: Lease) => Promise<T>,
): Promise<T | undefined> {
  const session = await pool.connect();
  let broken: Error | undefined;
  const lose = (cause?: Error) => {
    broken ??= new Error(`the session that keeps away ${excludes} was lost`, { cause });
    lease.lose(broken);
  };
  const lease = new Lease({
    async renew() {
      // A failed transaction keeps its lock until it ends, so run only a statement that cannot fail.
      await session.query('select').catch(lose);
      return true;
    },
  });
  session.on('error', lose);
  session.on('end', lose);
  try {
    await session.query(begin);
    const { rows } = await session.query<{ mine: boolean }>(
      `select pg_try_advisory_xact_lock(${number}) as mine`,
      values,
    );
    return rows[0]!.mine ? await work(lease) : undefined;
  } finally {
    await session.query('rollback').catch(lose);
    session.off('error', lose);
    session.off('end', lose);
    session.release(broken);
    await lease.end();
  }
}
