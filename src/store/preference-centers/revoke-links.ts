import type { Pool } from '../database.ts';

export interface Revoked {
  /** A center's links, or a user's. */
  kind: 'center' | 'user';
  /** The center's id, or the profile's. */
  id: string;
}

/** By primary key; of two revocations the later stands. Postgres's clock, which links are made by as well. */
const statement = `
  insert into preference_link_revocations (workspace_id, subject_kind, subject_id, revoked_at)
  values ($1::uuid, $2::text, $3::uuid, clock_timestamp())
  on conflict (workspace_id, subject_kind, subject_id) do update set revoked_at = excluded.revoked_at
  returning revoked_at as "revokedAt"`;

/** Every link of the subject that was made until now opens nothing from now on. @returns now */
export async function revokeLinks(pool: Pool, workspaceId: string, { kind, id }: Revoked): Promise<Date> {
  const { rows } = await pool.query<{ revokedAt: Date }>(statement, [workspaceId, kind, id]);
  return rows[0]!.revokedAt;
}
