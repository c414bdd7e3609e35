import type { Prisma } from '../generated/prisma/client.ts';
import { nowDate } from '../platform/clock.ts';
import type { Pool } from './database.ts';
import { type QueueLoss, SILENCE_MS } from './installation.ts';

/** A detected loss: Redis has less than the installation had recorded. */
interface Missing {
  found: QueueLoss['found'];
  mark: string;
  additions: number;
  /** Highest number of additions that the process itself has seen. */
  highestSeen: number;
  /** Name of the process. */
  by: string;
}

/**
 * Returns the statement that records a loss in the given table. Nothing is recorded if no loss is possible:
 * the queue was empty at the last check, and all members that could have added something since then have
 * left.
 */
const recordLossIn = (table: 'installation' | 'queue_shards') => `
  with before as (
    select queue.* from ${table} as queue
    where queue.generation = $1::integer${table === 'queue_shards' ? ' and queue.shard = $8::integer' : ''}
    for update
  ), recorded as (
    insert into queue_losses (found, additions_known, additions_found, accepted_from, accepted_until, noticed_by, shard)
    select $2::text, greatest(before.additions, $5::bigint), $4::bigint, before.waiting_since,
           pg_catalog.statement_timestamp(), $6::text, $8::integer
    from before
    where not before.drained
       or exists (
         select from members
          where members.joined_at <= before.looked_at
            and members.seen_at > before.looked_at - make_interval(secs => $7::integer))
    returning queue_losses.id
  )
  update ${table} as queue
     set generation = queue.generation + 1,
         mark = $3::text,
         additions = $4::bigint,
         looked_at = pg_catalog.statement_timestamp(),
         waiting_since = pg_catalog.statement_timestamp(),
         drained = false
    from before
   where ${table === 'queue_shards' ? 'queue.shard = before.shard' : 'queue.only_row = before.only_row'}
  returning (select count(*)::integer from recorded) as recorded`;

const recordLoss = recordLossIn('installation');

const recordShardLoss = recordLossIn('queue_shards');

/**
 * Records a loss of the queue, once for all processes, and continues with the current state of Redis.
 *
 * @returns false if no loss is possible, because the queue was empty and all members had left; undefined if
 * another process has recorded it
 */
export async function reportLoss(
  pool: Pool,
  generation: number,
  missing: Missing & { shard?: number },
): Promise<boolean | undefined> {
  const { found, mark, additions, highestSeen, by, shard = 0 } = missing;
  const values = [generation, found, mark, additions, highestSeen, by, SILENCE_MS / 1000, shard];
  const statement =
    shard === 0
      ? { name: 'tell-loss', text: recordLoss, values }
      : { name: 'tell-shard-loss', text: recordShardLoss, values };
  const { rows } = await pool.query<{ recorded: number }>(statement);
  return rows[0] && rows[0].recorded > 0;
}

/**
 * Confirms a loss and all earlier ones, which clears their alert.
 *
 * @returns the number of losses that were unconfirmed
 */
export async function confirmLosses(tx: Prisma.TransactionClient, upTo: number): Promise<number> {
  const where = { id: { lte: upTo }, confirmedAt: null };
  return (await tx.queueLoss.updateMany({ where, data: { confirmedAt: nowDate() } })).count;
}

const lostSince = `
  select exists (
    select from queue_losses where queue_losses.accepted_until >= $1::timestamptz) as lost`;

/** Returns whether the queue has lost objects that may have been accepted at this time. */
export async function hasLostSince(pool: Pick<Pool, 'query'>, acceptedAt: string): Promise<boolean> {
  const statement = { name: 'lost-since', text: lostSince, values: [acceptedAt] };
  const { rows } = await pool.query<{ lost: boolean }>(statement);
  return rows[0]!.lost;
}

/** A recorded loss. */
interface RecordedLoss {
  id: number;
  found: QueueLoss['found'];
  shard: number;
  acceptedFrom: string;
  acceptedUntil: string;
  additionsKnown: number;
  additionsFound: number;
  noticedBy: string;
  confirmedAt: string | null;
}

const list = `
  select queue_losses.id, queue_losses.found, queue_losses.shard, queue_losses.accepted_from as "acceptedFrom",
         queue_losses.accepted_until as "acceptedUntil", queue_losses.additions_known as "additionsKnown",
         queue_losses.additions_found as "additionsFound", queue_losses.noticed_by as "noticedBy",
         queue_losses.confirmed_at as "confirmedAt"
  from queue_losses
  order by queue_losses.id desc
  limit $1::integer`;

/** Returns the losses, latest first. */
export async function listLosses(pool: Pick<Pool, 'query'>, limit: number): Promise<RecordedLoss[]> {
  type Row = Omit<RecordedLoss, 'acceptedFrom' | 'acceptedUntil' | 'confirmedAt'> & {
    acceptedFrom: Date;
    acceptedUntil: Date;
    confirmedAt: Date | null;
  };
  const { rows } = await pool.query<Row>(list, [limit]);
  return rows.map((row) => ({
    ...row,
    acceptedFrom: row.acceptedFrom.toISOString(),
    acceptedUntil: row.acceptedUntil.toISOString(),
    confirmedAt: row.confirmedAt?.toISOString() ?? null,
  }));
}
