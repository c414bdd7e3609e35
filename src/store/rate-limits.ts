import { type Actor, type AuditEntry, auditIn } from './audit.ts';
import type { Database, Pool } from './database.ts';
import { forEachWorkspace } from './distributed.ts';
import { withCitusForm } from './one-workspace.ts';

/** A rate limit of a workspace that replaces the default of a bucket. */
export interface RateLimitOverride {
  bucket: string;
  requests: number;
  windowSeconds: number;
}

/** Sets a workspace's own rate limit. */
export async function setRateLimit(
  { prisma }: Pick<Database, 'prisma'>,
  actor: Actor,
  { workspaceId, bucket, requests, windowSeconds }: RateLimitOverride & { workspaceId: string },
): Promise<void> {
  const detail = { requests, window_seconds: windowSeconds };
  const entry = { subject: { kind: 'rate_limit', id: bucket }, workspaceId, detail };
  await prisma.$transaction([
    prisma.rateLimit.upsert({
      where: { workspaceId_bucket: { workspaceId, bucket } },
      create: { workspaceId, bucket, requests, windowSeconds },
      update: { requests, windowSeconds },
    }),
    auditIn(prisma, actor, [{ action: 'rate_limits.set', ...entry }]),
  ]);
}

/** Removes a workspace's own limits: for one bucket, or all. @returns the number of removed limits */
export async function resetRateLimits(
  { prisma }: Pick<Database, 'prisma'>,
  actor: Actor,
  { workspaceId, bucket }: { workspaceId: string; bucket?: string | undefined },
): Promise<number> {
  const where = { workspaceId, ...(bucket !== undefined && { bucket }) };
  return prisma.$transaction(async (tx) => {
    const gone = await tx.rateLimit.findMany({ where });
    await tx.rateLimit.deleteMany({ where });
    const entries = gone.map((one): AuditEntry => {
      const subject = { kind: 'rate_limit', id: one.bucket };
      return { action: 'rate_limits.reset', subject, workspaceId };
    });
    if (entries.length > 0) await auditIn(tx, actor, entries);
    return gone.length;
  });
}

/** Process types that count requests, each separately. */
export type Counter = 'web' | 'sync';

/** Stored state of a bucket. */
interface KeptBucket {
  /** Workspace, or the company of a SCIM token. */
  ownerId: string;
  bucket: string;
  counter: Counter;
  tokens: number;
  at: Date;
}

/** Reads by primary key. */
const find = `
  select token_buckets.tokens, token_buckets.at
  from token_buckets
  where token_buckets.owner_id = $1::uuid and token_buckets.bucket = $2::text
    and token_buckets.counter = $3::text`;

/** Returns the stored state of a bucket. Undefined if it was never written. */
export async function findTokenBucket(
  pool: Pool,
  { ownerId, bucket, counter }: Pick<KeptBucket, 'ownerId' | 'bucket' | 'counter'>,
): Promise<Pick<KeptBucket, 'tokens' | 'at'> | undefined> {
  const { rows } = await pool.query<Pick<KeptBucket, 'tokens' | 'at'>>({
    name: 'find-token-bucket',
    text: find,
    values: [ownerId, bucket, counter],
  });
  return rows[0];
}

/** Upserts in primary key order, so that processes lock the same rows in the same order. */
const upsert = withCitusForm(`
  insert into token_buckets (owner_id, bucket, counter, tokens, at)
  select given.owner_id, given.bucket, given.counter, given.tokens, given.at
  from unnest($1::uuid[], $2::text[], $3::text[], $4::double precision[], $5::timestamptz[])
    as given (owner_id, bucket, counter, tokens, at)
  order by given.owner_id, given.bucket, given.counter
  on conflict (owner_id, bucket, counter) do update
  set tokens = excluded.tokens, at = excluded.at`);

/** Stores the state of buckets. A bucket may occur only once. */
export async function keepTokenBuckets(pool: Pool, buckets: KeptBucket[]): Promise<void> {
  await forEachWorkspace(pool, { given: buckets, workspaceOf: ({ ownerId }) => ownerId }, async (some) => {
    await pool.query({
      name: 'keep-token-buckets',
      text: upsert,
      values: [
        some.map(({ ownerId }) => ownerId),
        some.map(({ bucket }) => bucket),
        some.map(({ counter }) => counter),
        some.map(({ tokens }) => tokens),
        some.map(({ at }) => at),
      ],
    });
    return [];
  });
}
