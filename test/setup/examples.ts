import type pg from 'pg';
import { buckets } from '../../src/schemas/limits.ts';

/** The preference center and the user that the documented examples of the endpoints name. */
const CENTER = '019c13ec-a2e2-7c24-9a1e-7d30b4f0c2e1';
const USER = {
  id: '019c13ec-a2e2-7b61-8f0c-55a3d4000000',
  externalId: 'lovelace',
  email: 'lovelace@example.com',
};

/** Makes what has to be there for the documented examples to be accepted. */
export async function seedExamples(pool: pg.Pool, workspaceId: string): Promise<void> {
  await pool.query(
    `insert into preference_centers (workspace_id, id, name, title, page_html, confirmation_html, state)
     values ($1, $2, 'newsletters', 'Your choices', 'page', 'saved', 'active')`,
    [workspaceId, CENTER],
  );
  await pool.query(
    `insert into profiles (workspace_id, id, external_id, email, created_at, updated_at)
     values ($1, $2, $3, $4, now(), now())`,
    [workspaceId, USER.id, USER.externalId, USER.email],
  );
}

/** Limits that no test of another rule comes to. */
export async function liftLimits(pool: pg.Pool, workspaceId: string): Promise<void> {
  await pool.query(
    'insert into rate_limits select $1, bucket, 1000000, 60 from unnest($2::text[]) as bucket',
    [workspaceId, Object.keys(buckets)],
  );
}
