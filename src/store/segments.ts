import type { Definition } from '../profile/segment.ts';
import type { Pool } from './database.ts';
import { conditionOf } from './segment-conditions.ts';

/** A segment as it is told of. */
export interface Segment {
  id: string;
  name: string;
  purpose: string;
  definition: Definition;
  createdAt: Date;
  updatedAt: Date;
}

/** What looking at some users, in the order of their ids, has found. */
export interface Looked {
  /** Users that were looked at. */
  read: number;
  matched: number;
  /** Ids of the first of those who match. */
  sample: string[];
  /** Id of the last user that was looked at; undefined: there was none. */
  last: string | undefined;
}

/** Smaller than every id. */
export const FIRST_ID = '00000000-0000-0000-0000-000000000000';

/** By a range of the primary key, then a look-up for each user and filter. */
const look = (condition: string) => `
  select
    count(*)::integer as read,
    (count(*) filter (where page.matches))::integer as matched,
    coalesce((array_agg(page.id order by page.id) filter (where page.matches))[1:$4::integer], '{}') as sample,
    (array_agg(page.id order by page.id desc))[1] as last
  from (
    select profiles.id, ${condition} as matches
    from profiles
    where profiles.workspace_id = $1::uuid and profiles.id > $2::uuid
    order by profiles.workspace_id, profiles.id
    limit $3::integer
  ) as page`;

/** Which part of a workspace's users is looked at. */
export interface Part {
  workspaceId: string;
  definition: Definition;
  /** Id of the user behind whom it begins. */
  after: string;
  /** Users at most. */
  limit: number;
  /** Ids of matching users that are wanted. */
  sample: number;
}

/** Asks which of some users of a workspace a filter means: a bounded piece of what may be millions. */
export async function lookAtUsers(
  pool: Pool,
  { workspaceId, definition, after, limit, sample }: Part,
): Promise<Looked> {
  const condition = conditionOf(definition, 4);
  const { rows } = await pool.query<Omit<Looked, 'last'> & { last: string | null }>({
    text: look(condition.text),
    values: [workspaceId, after, limit, sample, ...condition.values],
  });
  return { ...rows[0]!, last: rows[0]!.last ?? undefined };
}

/** By primary key: ids are UUIDv7, which follow the times at which they were made. */
const listStatement = (order: 'asc' | 'desc') => `
  select segments.id, segments.name
  from segments
  where segments.workspace_id = $1::uuid and segments.archived_at is null
  order by segments.workspace_id ${order}, segments.id ${order}
  limit $2 offset $3`;

const oldestFirst = listStatement('asc');
const newestFirst = listStatement('desc');

/** Segments that are not archived, by when they were made. */
export async function listSegments(
  pool: Pool,
  workspaceId: string,
  { newest, limit, offset }: { newest: boolean; limit: number; offset: number },
): Promise<Pick<Segment, 'id' | 'name'>[]> {
  const { rows } = await pool.query<Pick<Segment, 'id' | 'name'>>({
    name: newest ? 'list-segments-newest' : 'list-segments',
    text: newest ? newestFirst : oldestFirst,
    values: [workspaceId, limit, offset],
  });
  return rows;
}

/** By primary key. */
const findStatement = `
  select segments.id, segments.name, segments.purpose, segments.definition, segments.created_at as "createdAt",
    segments.updated_at as "updatedAt"
  from segments
  where segments.id = $2::uuid and segments.workspace_id = $1::uuid and segments.archived_at is null`;

/** A segment of the workspace that is not archived; undefined: there is none. */
export async function findSegment(pool: Pool, workspaceId: string, id: string): Promise<Segment | undefined> {
  const { rows } = await pool.query<Segment>({
    name: 'find-segment',
    text: findStatement,
    values: [workspaceId, id],
  });
  return rows[0];
}
