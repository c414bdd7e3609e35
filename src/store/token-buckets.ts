import type { Pool } from './database.ts';
import { forEachWorkspace } from './distributed.ts';

/** The kinds of process that count, each for itself. */
export type Counter = 'web' | 'sync';

/** What is left of a bucket. */
export interface KeptBucket {
  /** The workspace, or the company of a SCIM token. */
  ownerId: string;
  bucket: string;
  counter: Counter;
  tokens: number;
  at: Date;
}

/** By primary key. */
const find = `
  select token_buckets.tokens, token_buckets.at
  from token_buckets
  where token_buckets.owner_id = $1::uuid and token_buckets.bucket = $2::text
    and token_buckets.counter = $3::text`;

/** @returns nothing for a bucket that was never written */
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

/** By primary key. Locks in its order, for processes that write the same ones. */
const upsert = `
  insert into token_buckets (owner_id, bucket, counter, tokens, at)
  select given.owner_id, given.bucket, given.counter, given.tokens, given.at
  from unnest($1::uuid[], $2::text[], $3::text[], $4::double precision[], $5::timestamptz[])
    as given (owner_id, bucket, counter, tokens, at)
  order by given.owner_id, given.bucket, given.counter
  on conflict (owner_id, bucket, counter) do update
  set tokens = excluded.tokens, at = excluded.at`;

/** Writes what is left of buckets, each once. */
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
