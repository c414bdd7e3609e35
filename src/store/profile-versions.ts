import type { Connection } from './database.ts';

/** By workspace: a text that is another one as soon as anybody has changed whom a name of it means. */
export type ProfileVersions = ReadonlyMap<string, string>;

/**
 * Every transaction that changes whom names mean counts its identity operations against usage, in a row of its workspace,
 * day and lane: so their sum says whether there was one, whichever lane or release it was of. Of two days, since one that
 * began before midnight may still be counted on; the day stands beside it, since the first of the two leaves the sum with
 * it.
 *
 * Beside it what else may change behind a process's back: a server that was started again may have come from a backup, or
 * have been the standby of another one; a workspace that was moved to another shard was worked by other processes.
 *
 * By the primary keys of both tables: a row for each day and lane. Locks nothing.
 */
const readProfileVersionsStatement = `
  select coalesce(json_object_agg(workspaces.id, concat_ws(
    ' ', pg_postmaster_start_time(), (now() at time zone 'UTC')::date, workspaces.shard_moves, counted.identity
  )), '{}') as versions
  from workspaces
  cross join lateral (
    select coalesce(sum(usage.identity), 0) as identity
    from usage
    where usage.workspace_id = workspaces.id and usage.day >= (now() at time zone 'UTC')::date - 1
  ) as counted
  where workspaces.id = any($1::uuid[])`;

/** As of now, of those of the ids that are a workspace's. */
export async function readProfileVersions(tx: Connection, workspaceIds: string[]): Promise<ProfileVersions> {
  const { rows } = await tx.query<{ versions: Record<string, string> }>({
    name: 'read-profile-versions',
    text: readProfileVersionsStatement,
    values: [workspaceIds],
  });
  return new Map(Object.entries(rows[0]!.versions));
}
