import type { Connection, Pool } from './database.ts';

/** How many lanes an installation has, in how many shards. */
export interface Spread {
  /** Of all shards. */
  lanes: number;
  shards: number;
}

const read = 'select installation.lanes, installation.shards from installation';

/** Undefined: none of its processes was ever started. */
export async function readSpread(pool: Pick<Pool, 'query'>): Promise<Spread | undefined> {
  const { rows } = await pool.query<Spread>(read);
  return rows[0];
}

const lock = 'select installation.lanes, installation.shards from installation for update';

/** As `readSpread`; until the transaction ends no process joins the installation. */
export async function lockLanes(tx: Connection): Promise<Spread | undefined> {
  const { rows } = await tx.query<Spread>(lock);
  return rows[0];
}

const set = 'update installation set lanes = $1::integer, shards = $2::integer';

/**
 * Only where no process is there, and no lane holds anything whose number will mean another one.
 * @param lanes of all shards
 */
export async function setLanes(tx: Connection, lanes: number, shards = 1): Promise<void> {
  await tx.query(set, [lanes, shards]);
}

/** A process of the installation. */
export interface Member {
  /** A UUID of its own. */
  id: string;
  /** What it is: web, worker, … */
  name: string;
  host: string;
  pid: number;
}

/** What the installation knows of its queue. */
export interface InstallationState extends Spread, QueueState {
  /** What was lost and nobody has confirmed; absent: nothing. */
  loss: QueueLoss | undefined;
}

/** What it knows of the queue of one shard. */
export interface QueueState {
  /** Grows whenever the queue had lost something. */
  generation: number;
  /** What Redis held when it was looked at last; null: nobody has looked yet. */
  mark: string | null;
  additions: number;
  /** Milliseconds since that look. */
  age: number | null;
  /** The store's clock, as text, which keeps its microseconds. */
  now: string;
}

/** Milliseconds after which a member that says nothing counts as gone. */
export const SILENCE_MS = 30_000;

const found = `
  insert into installation (lanes, shards) values ($1::integer, $2::integer) on conflict do nothing`;

/** Whoever changes the number of lanes locks the row, and then looks who is there. */
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
 * Says that the member is there, unless it has another number of lanes than the installation, and tells what that
 * knows. The first member of all decides the number.
 */
export async function meetInstallation(
  pool: Pool,
  { id, name, host, pid }: Member,
  { lanes, shards }: Spread,
): Promise<InstallationState> {
  const values = [id, name, host, pid, lanes, shards];
  const ask = () => pool.query<Row>({ name: 'meet-installation', text: meet, values });
  let { rows } = await ask();
  if (rows.length === 0) {
    await pool.query({ name: 'found-installation', text: found, values: [lanes, shards] });
    ({ rows } = await ask());
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

/** What the installation knows of the queues of its shards but for the first, by their numbers; those that are new come later. */
export async function meetShards(pool: Pool, shards: number): Promise<Map<number, QueueState>> {
  const asked = { name: 'meet-shards', text: meetOthers, values: [shards] };
  const { rows } = await pool.query<QueueState & { shard: number }>(asked);
  return new Map(rows.map(({ shard, ...state }) => [shard, state]));
}

const leave = 'delete from members where id = $1::uuid';

/** Says that the member is gone, and that a look after its last addition found everything there. */
export async function leaveInstallation(pool: Pool, id: string): Promise<void> {
  await pool.query({ name: 'leave-installation', text: leave, values: [id] });
}

const present = `
  select members.id, members.name, members.host, members.pid
  from members
  where members.seen_at > pg_catalog.statement_timestamp() - make_interval(secs => $1::integer)
  order by members.joined_at
  limit 100`;

/** Those that have said a moment ago that they are there, a hundred at most. */
export async function presentMembers(pool: Pick<Pool, 'query'>): Promise<Member[]> {
  const { rows } = await pool.query<Member>(present, [SILENCE_MS / 1000]);
  return rows;
}

const forget = "delete from members where seen_at < pg_catalog.statement_timestamp() - interval '1 day'";

/** Drops those that ended without a word, long ago. */
export async function forgetMembers(pool: Pool): Promise<void> {
  await pool.query(forget);
}

/** What the queue has lost and nobody has confirmed yet, taken together. */
export interface QueueLoss {
  /** How many times. */
  losses: number;
  /** Number of the latest. */
  latest: number;
  /** What Redis was at the latest: empty (or another one), or behind what it had held. */
  found: 'empty' | 'behind';
  /** Whose lanes it was; absent: those of the first shard. */
  shard?: number;
  /** What was accepted from then … */
  acceptedFrom: string;
  /** … until then, and was not applied, may be lost. */
  acceptedUntil: string;
}

/** What a look has found in Redis. */
interface Looked {
  /** When it began, by the store's clock. */
  now: string;
  mark: string;
  additions: number;
  /** What had been accepted before was applied, in epoch milliseconds; undefined: nothing waits. */
  waitingSince: number | undefined;
}

/** @param table of the queue of the first shard, or of the others, whose number is the sixth value */
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

/** Remembers what was there, unless somebody has found meanwhile that something is missing. */
export async function rememberQueue(
  pool: Pool,
  generation: number,
  { shard = 0, ...looked }: Looked & { shard?: number },
): Promise<void> {
  const { mark, additions, now, waitingSince = null } = looked;
  const values = [generation, mark, additions, now, waitingSince];
  const asked =
    shard === 0
      ? { name: 'remember-queue', text: remember, values }
      : { name: 'remember-shard', text: rememberShard, values: [...values, shard] };
  await pool.query(asked);
}
