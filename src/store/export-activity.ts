import type { Json } from '../profile/json.ts';
import type { Pool } from './database.ts';
import type { ActivityTable } from './erasures.ts';

/** An event or a purchase under the names of `/users/track`, null without data; times are ISO 8601 in UTC. */
export type ExportedActivity = Record<string, Json>;

/** A row that was looked at; `activity` is null where its time is not wanted. */
export interface ActivityOf {
  id: string;
  /** Whose it was as it came in: since then they may have been merged into somebody, or deleted. */
  profileId: string;
  activity: ExportedActivity | null;
}

/** Which rows of a workspace, in the order of their users' ids, and of one user as they were accepted. */
export interface ActivityPart {
  workspaceId: string;
  /** Behind this row of this user. */
  after: { profileId: string; id: string };
  /** Only ids from this one on, which begin with the time of acceptance. */
  since: string;
  /** The first id of that month: months before it are not opened, and of the others every row is looked at. */
  sinceMonth: string;
  /** ISO 8601; by the time at which it happened, without `until` itself. */
  from: string | null;
  until: string | null;
  /** Rows that are looked at, at most. */
  limit: number;
}

const time = (table: string) =>
  `to_char(${table}."time" at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;

/** Prices came as numbers of JSON, and go as the same ones. */
const activity = {
  events: `json_build_object('name', events.name, 'time', ${time('events')}, 'app_id', events.app_id,
      'properties', events.properties)`,
  purchases: `json_build_object('product_id', purchases.product_id, 'currency', purchases.currency,
      'price', purchases.price, 'quantity', purchases.quantity, 'time', ${time('purchases')},
      'app_id', purchases.app_id, 'properties', purchases.properties)`,
};

/** A page in the order of the primary key, over the months from $4 on: no row of theirs is passed over uncounted. */
const readStatement = (table: ActivityTable) => `
  select ${table}.id, ${table}.profile_id as "profileId",
    case when ${table}.id >= $8::uuid and ($5::timestamptz is null or ${table}."time" >= $5) and ($6::timestamptz is null or ${table}."time" < $6)
      then ${activity[table]} end as activity
  from ${table}
  where ${table}.workspace_id = $1::uuid
    and (${table}.profile_id, ${table}.id) > ($2::uuid, $3::uuid)
    and ${table}.id >= $4::uuid
  order by ${table}.workspace_id, ${table}.profile_id, ${table}.id
  limit $7::integer`;

/** Reads the next rows of a workspace, those of deleted users among them as long as they are not erased. */
export async function readActivity(
  pool: Pick<Pool, 'query'>,
  table: ActivityTable,
  { workspaceId, after, since, sinceMonth, from, until, limit }: ActivityPart,
): Promise<ActivityOf[]> {
  const { rows } = await pool.query<ActivityOf>({
    name: `export-${table}`,
    text: readStatement(table),
    values: [workspaceId, after.profileId, after.id, sinceMonth, from, until, limit, since],
  });
  return rows;
}
