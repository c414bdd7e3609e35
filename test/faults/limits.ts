import type { Fleet } from '../guarantees/fleet.ts';

/** Raises the rate limits so that no test reaches them. */
export async function raiseLimits({ pool, workspace }: Fleet): Promise<void> {
  await pool.query(
    `insert into rate_limits (workspace_id, bucket, requests, window_seconds)
     select $1, bucket, 100000000, 60 from unnest($2::text[]) as bucket`,
    [workspace.id, ['users.track', 'users.identity', 'users.external_ids']],
  );
}
