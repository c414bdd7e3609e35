import type { Connection } from './database.ts';

/** What tells whether what is remembered of the users of a workspace holds still. */
export interface ProfileVersion {
  /** Another one as soon as anybody has changed whom a name means. */
  names: string;
  /** Attribute objects that took effect: nothing else makes attributes grow but what changes `names`. */
  attributes: number;
}

/** By workspace. */
export type ProfileVersions = ReadonlyMap<string, ProfileVersion>;

/**
 * Every transaction counts what it does against usage, in a row of its workspace, day and lane, whichever lane or release it
 * is of: so the sum of identity operations says whether there was one that changed whom names mean. Of two days, since one
 * that began before midnight may still be counted on; the day stands beside it, since the first of the two leaves the sum
 * with it. The server's start and the database do as well: what is there may have come from a backup, or have been the
 * standby's.
 *
 * By the primary key: a row for each day and lane. Locks nothing.
 */
const readProfileVersionsStatement = `
  select coalesce(json_object_agg(wanted.id, json_build_object(
    'names', concat_ws(' ', pg_postmaster_start_time(), here.oid, (now() at time zone 'UTC')::date, counted.identity),
    'attributes', counted.attributes
  )), '{}') as versions
  from unnest($1::uuid[]) as wanted (id)
  cross join lateral (
    select coalesce(sum(usage.identity), 0) as identity, coalesce(sum(usage.attributes), 0) as attributes
    from usage
    where usage.workspace_id = wanted.id and usage.day >= (now() at time zone 'UTC')::date - 1
  ) as counted
  cross join (select pg_database.oid from pg_database where pg_database.datname = current_database()) as here`;

/** As of now. */
export async function readProfileVersions(tx: Connection, workspaceIds: string[]): Promise<ProfileVersions> {
  const { rows } = await tx.query<{ versions: Record<string, ProfileVersion> }>({
    name: 'read-profile-versions',
    text: readProfileVersionsStatement,
    values: [workspaceIds],
  });
  return new Map(Object.entries(rows[0]!.versions));
}
