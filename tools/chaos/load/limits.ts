import type pg from 'pg';
import { buckets } from '../../../src/schemas/limits.ts';

/** Gives a workspace rate limits that no load reaches. */
export async function raiseLimitsOf(pool: pg.Pool, workspaceId: string): Promise<void> {
  await pool.query(
    `insert into rate_limits (workspace_id, bucket, requests, window_seconds)
     select $1, bucket, 100000000, 60 from unnest($2::text[]) as bucket`,
    [workspaceId, Object.keys(buckets)],
  );
}
