import type { Pool } from './database.ts';
import { isHeldRow, leasesOf, type RowLease, rowLeaseValues, takeOldest, takeOldestOf } from './leases.ts';

/**
 * Leases of destinations. A lease has an id of its own instead of that of the process, because the cursor may have
 * been reset since the process lost an earlier lease.
 */
export const destinationLeases = leasesOf({
  ...{ table: 'stream_destinations', until: 'leased_until', holder: 'leased_by' },
  nullIsFree: true,
});

/** A leased destination with everything that delivery needs. */
export interface LeasedDestination extends RowLease {
  /** Name of the workspace. */
  workspace: string;
  name: string;
  kind: string;
  settings: Record<string, unknown>;
  secret: Buffer | null;
  position: string;
  place: number;
  failures: number;
  /** `gather_ms` of `stream_destinations`, in milliseconds. */
  gatherMs: number;
  /** Epoch milliseconds by Postgres's clock. */
  leasedAt: number;
  /** End of the file that is being uploaded. It is uploaded again with the same content. */
  planned: { position: string; place: number } | undefined;
  /** Hour under which the current file, or the last one, is stored. */
  fileHour: Date | null;
}

/**
 * A gathering destination is due once the first `rows` rows of the log contain this many entries, whatever
 * their age.
 */
const FULL = { entries: 20_000, rows: 1000 };

const waiting = `
        from stream_log
        where stream_log.workspace_id = stream_destinations.workspace_id
          and stream_log.id > stream_destinations.position
        order by stream_log.id`;

/**
 * Leases destinations that are free and have something to deliver. An installation has few destinations, so
 * all are checked. Gathering destinations are checked only as far as necessary: for a file that is being
 * uploaded, then the age of the oldest row, then the number of entries.
 */
const leaseStatements = takeOldestOf(destinationLeases, {
  name: 'lease-destinations',
  values: 1,
  where: `stream_destinations.state = 'active'
      and (stream_destinations.gather_ms > 0) = $1::boolean
      and (stream_destinations.next_try_at is null or stream_destinations.next_try_at < statement_timestamp())`,
  andWhere: `and exists (select ${waiting} limit 1)
      and case
        when stream_destinations.gather_ms = 0 or stream_destinations.planned_position is not null then true
        when (select stream_log.at ${waiting} limit 1)
          <= statement_timestamp() - stream_destinations.gather_ms * interval '1 millisecond' then true
        else (
          select sum(octet_length(gathered.kinds))
          from (select stream_log.kinds ${waiting} limit ${FULL.rows}) as gathered) >= ${FULL.entries}
      end`,
  order: 'stream_destinations.leased_until nulls first',
  join: 'join workspaces on workspaces.id = free.workspace_id',
  returning: `
    ${destinationLeases.lease} as lease,
    stream_destinations.workspace_id::text as "workspaceId", stream_destinations.id::text,
    stream_destinations.name, stream_destinations.kind, stream_destinations.settings,
    stream_destinations.secret, stream_destinations.position::text, stream_destinations.place,
    stream_destinations.failures, stream_destinations.gather_ms as "gatherMs", workspaces.name as workspace,
    stream_destinations.leased_until as "leasedUntil",
    stream_destinations.planned_position::text as "plannedPosition",
    stream_destinations.planned_place as "plannedPlace", stream_destinations.file_hour as "fileHour"`,
});

type LeasedRow = Omit<LeasedDestination, 'planned' | 'leasedAt'> & {
  leasedUntil: Date;
  plannedPosition: string | null;
  plannedPlace: number | null;
};

/**
 * Leases up to `limit` destinations for some milliseconds, during which no other process delivers to them.
 * Only destinations that have something to deliver are leased. A gathering destination must also have waited
 * long enough for its oldest entry, or have enough entries. The destination whose last lease ended first
 * comes first.
 *
 * @param wanted `gathers` selects the gathering destinations, or the others
 */
export async function leaseDestinations(
  pool: Pool,
  { milliseconds, limit, gathers }: { milliseconds: number; limit: number; gathers: boolean },
): Promise<LeasedDestination[]> {
  const wanted = { values: [gathers], milliseconds, limit };
  const rows = await takeOldest<LeasedRow>(pool, leaseStatements, wanted);
  return rows.map(({ plannedPosition, plannedPlace, leasedUntil, ...leased }) => ({
    ...leased,
    leasedAt: leasedUntil.getTime() - milliseconds,
    planned: plannedPosition === null ? undefined : { position: plannedPosition, place: plannedPlace ?? 0 },
  }));
}

const leaseCondition = `
  where ${isHeldRow(destinationLeases)}
    and stream_destinations.state = 'active'`;

const renewStatement = `
  update stream_destinations
  set
    ${destinationLeases.extend('$4')},
    planned_position = coalesce($5::bigint, stream_destinations.planned_position),
    planned_place = coalesce($6::integer, stream_destinations.planned_place),
    file_hour = coalesce($7::timestamptz, stream_destinations.file_hour)
  ${leaseCondition}`;

/** A file that is about to be uploaded. */
interface PlannedFile {
  /** Position of its last entry. */
  position: string;
  place: number;
  hour: Date;
}

/**
 * Extends a lease. With `file`, that file is uploaded from now on until the cursor has passed it: whichever
 * process holds the lease uploads the same entries.
 *
 * @returns false if the lease was lost or the destination is paused
 */
export async function renewDestination(
  pool: Pool,
  lease: RowLease,
  { milliseconds, file }: { milliseconds: number; file?: PlannedFile },
): Promise<boolean> {
  const { position = null, place = null, hour = null } = file ?? {};
  const values = [...rowLeaseValues(lease), milliseconds, position, place, hour];
  const { rowCount } = await pool.query({ name: 'renew-destination', text: renewStatement, values });
  return rowCount === 1;
}

// Does not wait for the disk. If a crash of Postgres reverts the cursor, the messages are delivered again
// with the same ids.
const advanceStatement = `
  update stream_destinations
  set
    position = $4::bigint, place = $5::integer, planned_position = null, planned_place = null,
    delivered = stream_destinations.delivered + $6::integer,
    delivered_at = now(), failures = 0, last_error = null, failed_at = null, next_try_at = null,
    ${destinationLeases.extend('$7')}
  from (select set_config('synchronous_commit', 'off', true)) as unhurried
  ${leaseCondition}`;

/**
 * Moves the cursor past the delivered entries and extends the lease.
 *
 * @returns false if the lease was lost or the destination is paused
 */
export async function advanceDestination(
  pool: Pool,
  lease: RowLease,
  moved: { position: string; place: number; delivered: number; milliseconds: number },
): Promise<boolean> {
  const { position, place, delivered, milliseconds } = moved;
  const values = [...rowLeaseValues(lease), position, place, delivered, milliseconds];
  const { rowCount } = await pool.query({ name: 'advance-destination', text: advanceStatement, values });
  return rowCount === 1;
}

const giveBackStatement = `
  update stream_destinations
  set
    ${destinationLeases.release()},
    failures = case when $4::text is null then stream_destinations.failures else stream_destinations.failures + 1 end,
    last_error = coalesce($4::text, stream_destinations.last_error),
    failed_at = greatest(stream_destinations.failed_at, now() + case when $4::text is not null then interval '0' end),
    next_try_at = statement_timestamp()
      + case
        when $4::text is not null
          then least($7::integer, $5::integer * 2.0 ^ least(stream_destinations.failures, 20)) * interval '1 millisecond'
        when $5::integer <> 0 then $5::integer * interval '1 millisecond'
      end,
    state = case when $6::boolean then 'paused' else stream_destinations.state end
  ${leaseCondition}`;

/**
 * Releases a lease, so that all waiting destinations come first. The next attempt is due after `retryMs`
 * milliseconds, by default immediately. With `error`, the attempt counts as failed, and the delay doubles
 * with each failed attempt since the last delivery, up to `maxMs`. `pause` stops delivery until the
 * destination is resumed.
 */
export async function releaseDestination(
  pool: Pool,
  lease: RowLease,
  {
    error = null,
    retryMs = 0,
    maxMs = retryMs,
    pause = false,
  }: { error?: string | null; retryMs?: number; maxMs?: number; pause?: boolean } = {},
): Promise<void> {
  await pool.query({
    name: 'give-back-destination',
    text: giveBackStatement,
    values: [...rowLeaseValues(lease), error, retryMs, pause, maxMs],
  });
}
