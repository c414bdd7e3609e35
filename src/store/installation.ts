import type { Connection, Pool } from './database.ts';

/** Number of lanes and shards of an installation. */
export interface Spread {
  /** Number of lanes of all shards together. */
  lanes: number;
  shards: number;
}

const read = 'select installation.lanes, installation.shards from installation';

/** Returns the lanes and shards of the installation. Undefined if no process was ever started. */
export async function readSpread(pool: Pick<Pool, 'query'>): Promise<Spread | undefined> {
  const { rows } = await pool.query<Spread>(read);
  return rows[0];
}

const lock = 'select installation.lanes, installation.shards from installation for update';

/** Same as `readSpread`. No process can join the installation until the transaction ends. */
export async function lockLanes(tx: Connection): Promise<Spread | undefined> {
  const { rows } = await tx.query<Spread>(lock);
  return rows[0];
}

const set = 'update installation set lanes = $1::integer, shards = $2::integer';

/**
 * Sets the number of lanes and shards. Call it only while no process is running and all lanes whose numbers
 * change their meaning are empty.
 *
 * @param lanes number of lanes of all shards together
 */
export async function setLanes(tx: Connection, lanes: number, shards = 1): Promise<void> {
  await tx.query(set, [lanes, shards]);
}

/** A process of the installation. */
export interface Member {
  /** UUID of the process. */
  id: string;
  /** Process type, for example web or worker. */
  name: string;
  host: string;
  pid: number;
}

/** State of the installation and of the queue of its first shard. */
interface InstallationState extends Spread, QueueState {
  /** Unconfirmed losses of the queue. Absent if there are none. */
  loss: QueueLoss | undefined;
}

/** State of the queue of one shard. */
export interface QueueState {
  /** Incremented with each detected loss. */
  generation: number;
  /** Id found in Redis at the last check. Null before the first check. */
  mark: string | null;
  additions: number;
  /** Milliseconds since the last check. */
  age: number | null;
  /** The store's clock as text, which keeps microseconds. */
  now: string;
}

/** Milliseconds without a heartbeat after which a member counts as gone. */
export const SILENCE_MS = 30_000;

const insertInstallation = `
  insert into installation (lanes, shards) values ($1::integer, $2::integer) on conflict do nothing`;

/** `for share` conflicts with `lockLanes`, which locks the row and then checks that no member is present. */
const meet = `
  with state as (
    select installation.* from installation for share
  ), present as (
    insert into members (id, name, host, pid, joined_at, seen_at)
    select $1::uuid, $2::text, $3::text, $4::integer, pg_catalog.statement_timestamp(), pg_catalog.statement_timestamp()
    from state
    where state.lanes = $5::integer and state.shards = $6::integer
    on conflict (id) do update set seen_at = excluded.seen_at
  )
  select state.lanes, state.shards, state.generation, state.mark, state.additions,
         pg_catalog.statement_timestamp()::text as now,
         (extract(epoch from pg_catalog.statement_timestamp() - state.looked_at) * 1000)::float8 as age,
         lost.losses, lost.latest, lost.accepted_from as "acceptedFrom",
         lost.accepted_until as "acceptedUntil",
         (select queue_losses.found from queue_losses where queue_losses.id = lost.latest) as found,
         (select queue_losses.shard from queue_losses where queue_losses.id = lost.latest) as shard
  from state
  cross join (
    select count(*)::integer as losses, max(queue_losses.id) as latest,
           min(queue_losses.accepted_from) as accepted_from, max(queue_losses.accepted_until) as accepted_until
    from queue_losses
    where queue_losses.confirmed_at is null
  ) as lost`;

interface Row extends Omit<InstallationState, 'loss'> {
  losses: number;
  latest: number;
  found: QueueLoss['found'];
  shard: number;
  acceptedFrom: Date;
  acceptedUntil: Date;
}

/**
 * Records a heartbeat of the member and returns the state of the installation. A member with a different
 * number of lanes or shards is not recorded. The first member of all sets both numbers.
 */
export async function meetInstallation(
  pool: Pool,
  { id, name, host, pid }: Member,
  { lanes, shards }: Spread,
): Promise<InstallationState> {
  const values = [id, name, host, pid, lanes, shards];
  const query = () => pool.query<Row>({ name: 'meet-installation', text: meet, values });
  let { rows } = await query();
  if (rows.length === 0) {
    await pool.query({ name: 'found-installation', text: insertInstallation, values: [lanes, shards] });
    ({ rows } = await query());
  }
  return { ...rows[0]!, loss: lossOf(rows[0]!) };
}

function lossOf({ losses, latest, found, shard, acceptedFrom, acceptedUntil }: Row): QueueLoss | undefined {
  if (losses === 0) return undefined;
  return {
    ...{ losses, latest, found, ...(shard > 0 && { shard }) },
    acceptedFrom: acceptedFrom.toISOString(),
    acceptedUntil: acceptedUntil.toISOString(),
  };
}

const meetOthers = `
  with made as (
    insert into queue_shards (shard) select generate_series(1, $1::integer - 1) on conflict do nothing
  )
  select queue_shards.shard, queue_shards.generation, queue_shards.mark, queue_shards.additions,
         pg_catalog.statement_timestamp()::text as now,
         (extract(epoch from pg_catalog.statement_timestamp() - queue_shards.looked_at) * 1000)::float8 as age
  from queue_shards
  where queue_shards.shard < $1::integer`;

/**
 * Returns the state of the queues of all shards except the first, by shard number. Inserts the rows of new
 * shards; they are returned from the next call on.
 */
export async function meetShards(pool: Pool, shards: number): Promise<Map<number, QueueState>> {
  const statement = { name: 'meet-shards', text: meetOthers, values: [shards] };
  const { rows } = await pool.query<QueueState & { shard: number }>(statement);
  return new Map(rows.map(({ shard, ...state }) => [shard, state]));
}

const leave = 'delete from members where id = $1::uuid';

/**
 * Removes a member that shuts down. Call it only after a check of the queue that followed the member's last
 * addition has found no loss.
 */
export async function leaveInstallation(pool: Pool, id: string): Promise<void> {
  await pool.query({ name: 'leave-installation', text: leave, values: [id] });
}

const present = `
  select members.id, members.name, members.host, members.pid
  from members
  where members.seen_at > pg_catalog.statement_timestamp() - make_interval(secs => $1::integer)
  order by members.joined_at
  limit 100`;

/** Returns up to 100 members that have sent a heartbeat within SILENCE_MS. */
export async function presentMembers(pool: Pick<Pool, 'query'>): Promise<Member[]> {
  const { rows } = await pool.query<Member>(present, [SILENCE_MS / 1000]);
  return rows;
}

const forget = "delete from members where seen_at < pg_catalog.statement_timestamp() - interval '1 day'";

/** Deletes members that ended without leaving, one day after their last heartbeat. */
export async function forgetMembers(pool: Pool): Promise<void> {
  await pool.query(forget);
}

/** Summary of the unconfirmed losses of the queue. */
export interface QueueLoss {
  /** Number of losses. */
  losses: number;
  /** Id of the latest loss. */
  latest: number;
  /** State of Redis at the latest loss: `empty` (or a different Redis), or `behind` its last known state. */
  found: 'empty' | 'behind';
  /** Shard of the queue. Absent for the first shard. */
  shard?: number;
  /** Objects accepted from this time … */
  acceptedFrom: string;
  /** … until this time, and not yet applied, may be lost. */
  acceptedUntil: string;
}

/** Result of a check of Redis. */
interface CheckResult {
  /** Start of the check, by the store's clock. */
  now: string;
  mark: string;
  additions: number;
  /**
   * Everything accepted before this time has been applied; in epoch milliseconds. Undefined if the queue is
   * empty.
   */
  waitingSince: number | undefined;
}

/**
 * @param table `installation` for the first shard; `queue_shards` for the others, with the shard number as
 * the sixth value
 */
const rememberIn = (table: 'installation' | 'queue_shards') => `
  update ${table} as queue
     set mark = $2::text,
         additions = greatest(queue.additions, $3::bigint),
         looked_at = $4::timestamptz,
         waiting_since = coalesce(to_timestamp($5::float8 / 1000), $4::timestamptz),
         drained = $5::float8 is null
   where queue.generation = $1::integer
     and (queue.looked_at is null or queue.looked_at <= $4::timestamptz)
     ${table === 'queue_shards' ? 'and queue.shard = $6::integer' : ''}`;

const remember = rememberIn('installation');
const rememberShard = rememberIn('queue_shards');

/** Stores the result of a check, unless another process has detected a loss since then. */
export async function rememberQueue(
  pool: Pool,
  generation: number,
  { shard = 0, ...result }: CheckResult & { shard?: number },
): Promise<void> {
  const { mark, additions, now, waitingSince = null } = result;
  const values = [generation, mark, additions, now, waitingSince];
  const statement =
    shard === 0
      ? { name: 'remember-queue', text: remember, values }
      : { name: 'remember-shard', text: rememberShard, values: [...values, shard] };
  await pool.query(statement);
}
