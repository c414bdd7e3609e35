import type { Connection, Pool } from './database.ts';

const read = 'select installation.lanes from installation';

/** The installation's number of lanes; undefined: none of its processes was ever started. */
export async function readLanes(pool: Pick<Pool, 'query'>): Promise<number | undefined> {
  const { rows } = await pool.query<{ lanes: number }>(read);
  return rows[0]?.lanes;
}

const lock = 'select installation.lanes from installation for update';

/** As `readLanes`; until the transaction ends no process joins the installation. */
export async function lockLanes(tx: Connection): Promise<number | undefined> {
  const { rows } = await tx.query<{ lanes: number }>(lock);
  return rows[0]?.lanes;
}

const set = 'update installation set lanes = $1::integer';

/** Only where no process is there and no lane holds anything. */
export async function setLanes(tx: Connection, lanes: number): Promise<void> {
  await tx.query(set, [lanes]);
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
export interface InstallationState {
  lanes: number;
  /** Grows whenever the queue had lost something. */
  generation: number;
  /** What Redis held when it was looked at last; null: nobody has looked yet. */
  mark: string | null;
  additions: number;
  /** Milliseconds since that look. */
  age: number | null;
  /** The store's clock, as text, which keeps its microseconds. */
  now: string;
  /** What was lost and nobody has confirmed; absent: nothing. */
  loss: QueueLoss | undefined;
}

/** Milliseconds after which a member that says nothing counts as gone. */
export const SILENCE_MS = 30_000;

const found = `
  insert into installation (lanes) values ($1::integer) on conflict do nothing`;

/** Whoever changes the number of lanes locks the row, and then looks who is there. */
const meet = `
  with state as (
    select installation.* from installation for share
  ), present as (
    insert into members (id, name, host, pid, joined_at, seen_at)
    select $1::uuid, $2::text, $3::text, $4::integer, statement_timestamp(), statement_timestamp()
    from state
    where state.lanes = $5::integer
    on conflict (id) do update set seen_at = excluded.seen_at
  )
  select state.lanes, state.generation, state.mark, state.additions,
         statement_timestamp()::text as now,
         (extract(epoch from statement_timestamp() - state.looked_at) * 1000)::float8 as age,
         lost.losses, lost.latest, lost.accepted_from, lost.accepted_until,
         (select queue_losses.found from queue_losses where queue_losses.id = lost.latest) as found
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
  accepted_from: Date;
  accepted_until: Date;
}

/**
 * Says that the member is there, unless it has another number of lanes than the installation, and tells what that
 * knows. The first member of all decides the number.
 */
export async function meetInstallation(
  pool: Pool,
  { id, name, host, pid }: Member,
  lanes: number,
): Promise<InstallationState> {
  const values = [id, name, host, pid, lanes];
  const ask = () => pool.query<Row>({ name: 'meet-installation', text: meet, values });
  let { rows } = await ask();
  if (rows.length === 0) {
    await pool.query({ name: 'found-installation', text: found, values: [lanes] });
    ({ rows } = await ask());
  }
  return { ...rows[0]!, loss: lossOf(rows[0]!) };
}

function lossOf({ losses, latest, found, accepted_from, accepted_until }: Row): QueueLoss | undefined {
  if (losses === 0) return undefined;
  return {
    ...{ losses, latest, found },
    accepted_from: accepted_from.toISOString(),
    accepted_until: accepted_until.toISOString(),
  };
}

const leave = 'delete from members where id = $1::uuid';

/** Says that the member is gone, and that a look after its last addition found everything there. */
export async function leaveInstallation(pool: Pool, id: string): Promise<void> {
  await pool.query({ name: 'leave-installation', text: leave, values: [id] });
}

const present = `
  select members.id, members.name, members.host, members.pid
  from members
  where members.seen_at > statement_timestamp() - make_interval(secs => $1::integer)
  order by members.joined_at
  limit 100`;

/** Those that have said a moment ago that they are there, a hundred at most. */
export async function presentMembers(pool: Pick<Pool, 'query'>): Promise<Member[]> {
  const { rows } = await pool.query<Member>(present, [SILENCE_MS / 1000]);
  return rows;
}

const forget = "delete from members where seen_at < statement_timestamp() - interval '1 day'";

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
  /** What was accepted from then … */
  accepted_from: string;
  /** … until then, and was not applied, may be lost. */
  accepted_until: string;
}

/** What a look has found in Redis. */
export interface Looked {
  /** When it began, by the store's clock. */
  now: string;
  mark: string;
  additions: number;
  /** What had been accepted before was applied, in epoch milliseconds; undefined: nothing waits. */
  waitingSince: number | undefined;
}

const remember = `
  update installation
     set mark = $2::text,
         additions = greatest(installation.additions, $3::bigint),
         looked_at = $4::timestamptz,
         waiting_since = coalesce(to_timestamp($5::float8 / 1000), $4::timestamptz),
         drained = $5::float8 is null
   where installation.generation = $1::integer
     and (installation.looked_at is null or installation.looked_at <= $4::timestamptz)`;

/** Remembers what was there, unless somebody has found meanwhile that something is missing. */
export async function rememberQueue(pool: Pool, generation: number, looked: Looked): Promise<void> {
  const { mark, additions, now, waitingSince = null } = looked;
  const values = [generation, mark, additions, now, waitingSince];
  await pool.query({ name: 'remember-queue', text: remember, values });
}

/** Less than what the installation knew. */
export interface Missing {
  found: QueueLoss['found'];
  mark: string;
  additions: number;
  /** The most that the process itself has seen. */
  known: number;
  /** Its name. */
  by: string;
}

/** Nobody who could have added anything since the last look is left: it was drained then, and they have taken leave. */
const tell = `
  with before as (
    select installation.* from installation where installation.generation = $1::integer for update
  ), told as (
    insert into queue_losses (found, additions_known, additions_found, accepted_from, accepted_until, noticed_by)
    select $2::text, greatest(before.additions, $5::bigint), $4::bigint, before.waiting_since,
           statement_timestamp(), $6::text
    from before
    where not before.drained
       or exists (
         select from members
          where members.joined_at <= before.looked_at
            and members.seen_at > before.looked_at - make_interval(secs => $7::integer))
    returning queue_losses.id
  )
  update installation
     set generation = installation.generation + 1,
         mark = $3::text,
         additions = $4::bigint,
         looked_at = statement_timestamp(),
         waiting_since = statement_timestamp(),
         drained = false
    from before
   where installation.only_row = before.only_row
  returning (select count(*)::integer from told) as told`;

/**
 * Writes down that the queue has lost something, once for all processes; what it is now counts from here on.
 *
 * @returns false when nothing can have been lost, since the queue was drained and everybody had left; undefined when
 *   somebody else has written it down
 */
export async function tellLoss(
  pool: Pool,
  generation: number,
  missing: Missing,
): Promise<boolean | undefined> {
  const { found, mark, additions, known, by } = missing;
  const values = [generation, found, mark, additions, known, by, SILENCE_MS / 1000];
  const { rows } = await pool.query<{ told: number }>({ name: 'tell-loss', text: tell, values });
  return rows[0] && rows[0].told > 0;
}

const confirm = `
  update queue_losses
     set confirmed_at = statement_timestamp()
   where queue_losses.id <= $1::integer
     and queue_losses.confirmed_at is null
  returning queue_losses.id`;

/** Ends the message about a loss and about those before it. @returns how many nobody had confirmed */
export async function confirmLosses(pool: Pick<Pool, 'query'>, upTo: number): Promise<number> {
  const { rowCount } = await pool.query(confirm, [upTo]);
  return rowCount ?? 0;
}

/** One loss, as it was written down. */
export interface WrittenLoss {
  id: number;
  found: QueueLoss['found'];
  accepted_from: string;
  accepted_until: string;
  additions_known: number;
  additions_found: number;
  noticed_by: string;
  confirmed_at: string | null;
}

const list = `
  select queue_losses.id, queue_losses.found, queue_losses.accepted_from, queue_losses.accepted_until,
         queue_losses.additions_known, queue_losses.additions_found, queue_losses.noticed_by,
         queue_losses.confirmed_at
  from queue_losses
  order by queue_losses.id desc
  limit $1::integer`;

/** The latest first. */
export async function listLosses(pool: Pick<Pool, 'query'>, limit: number): Promise<WrittenLoss[]> {
  type Row = Omit<WrittenLoss, 'accepted_from' | 'accepted_until' | 'confirmed_at'> & {
    accepted_from: Date;
    accepted_until: Date;
    confirmed_at: Date | null;
  };
  const { rows } = await pool.query<Row>(list, [limit]);
  return rows.map((row) => ({
    ...row,
    accepted_from: row.accepted_from.toISOString(),
    accepted_until: row.accepted_until.toISOString(),
    confirmed_at: row.confirmed_at?.toISOString() ?? null,
  }));
}
