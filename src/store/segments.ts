import { MAX_UUID, newId } from '../platform/ids.ts';
import type { Definition } from '../profile/segment.ts';
import { type Actor, type AuditAction, audited } from './audit.ts';
import type { Database, Pool } from './database.ts';
import { conditionOf } from './segment-conditions.ts';

/** A stored segment. */
interface Segment {
  id: string;
  name: string;
  purpose: string;
  definition: Definition;
  createdAt: Date;
  updatedAt: Date;
}

/** Result of evaluating a filter for a page of users in id order. */
interface EvaluatedUsers {
  /** Number of users that were evaluated. */
  read: number;
  matched: number;
  /** Ids of the first matching users. */
  sample: string[];
  /** Id of the last evaluated user. Undefined if there was no user. */
  last: string | undefined;
}

/** Reads a range of the primary key, then makes one lookup per user and filter. */
const evaluateStatement = (condition: string) => `
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

/** A filter and a page of a workspace's users. */
interface Part {
  workspaceId: string;
  definition: Definition;
  /** Id of the user after whom the page begins. */
  after: string;
  /** Maximum number of users. */
  limit: number;
  /** Maximum number of matching ids to return. */
  sample: number;
}

/** Evaluates a filter for a limited page of users, because a workspace may have millions. */
export async function evaluateUsers(
  pool: Pick<Pool, 'query'>,
  { workspaceId, definition, after, limit, sample }: Part,
): Promise<EvaluatedUsers> {
  const condition = conditionOf(definition, 4);
  const { rows } = await pool.query<Omit<EvaluatedUsers, 'last'> & { last: string | null }>({
    text: evaluateStatement(condition.text),
    values: [workspaceId, after, limit, sample, ...condition.values],
  });
  return { ...rows[0]!, last: rows[0]!.last ?? undefined };
}

/** Returns segments that are not archived, by time of creation. Ids are UUIDv7, which follow that time. */
export function listSegments(
  { prisma }: Pick<Database, 'prisma'>,
  workspaceId: string,
  { newest, limit, offset }: { newest: boolean; limit: number; offset: number },
): Promise<Pick<Segment, 'id' | 'name'>[]> {
  const order = newest ? 'desc' : 'asc';
  return prisma.segment.findMany({
    where: { workspaceId, archivedAt: null },
    orderBy: [{ workspaceId: order }, { id: order }],
    select: { id: true, name: true },
    take: limit,
    skip: offset,
  });
}

/** Reads by primary key. */
const findStatement = `
  select segments.id, segments.name, segments.purpose, segments.definition, segments.created_at as "createdAt",
    segments.updated_at as "updatedAt"
  from segments
  where segments.id = $2::uuid and segments.workspace_id = $1::uuid and segments.archived_at is null`;

/** Returns a segment of the workspace. Undefined if it does not exist or is archived. */
export async function findSegment(
  pool: Pick<Pool, 'query'>,
  workspaceId: string,
  id: string,
): Promise<Segment | undefined> {
  const { rows } = await pool.query<Segment>({
    name: 'find-segment',
    text: findStatement,
    values: [workspaceId, id],
  });
  return rows[0];
}

/** A segment as the console shows it. */
export interface ShownSegment extends Segment {
  workspaceId: string;
  archivedAt: Date | null;
}

const shownColumns = `
    segments.id, segments.workspace_id as "workspaceId", segments.name, segments.purpose, segments.definition,
    segments.created_at as "createdAt", segments.updated_at as "updatedAt", segments.archived_at as "archivedAt"`;

/** Reads the end of the workspace's range of the primary key. */
const listShownStatement = `
  select ${shownColumns}
  from segments
  where segments.workspace_id = $1::uuid and segments.id < $2::uuid
  order by segments.workspace_id desc, segments.id desc
  limit $3::integer`;

/** Returns a page of a workspace's segments including archived ones, newest first. */
export async function listShownSegments(
  pool: Pool,
  workspaceId: string,
  { before = MAX_UUID, limit }: { before?: string | undefined; limit: number },
): Promise<ShownSegment[]> {
  const { rows } = await pool.query<ShownSegment>({
    name: 'list-shown-segments',
    text: listShownStatement,
    values: [workspaceId, before, limit],
  });
  return rows;
}

/** Reads by primary key, once per workspace. */
const findShownStatement = `
  select ${shownColumns}
  from segments
  where segments.workspace_id = any($1::uuid[]) and segments.id = $2::uuid`;

/** Returns a segment of one of the workspaces, archived or not. */
export async function findShownSegment(
  pool: Pool,
  workspaceIds: readonly string[],
  id: string,
): Promise<ShownSegment | undefined> {
  const { rows } = await pool.query<ShownSegment>({
    name: 'find-shown-segment',
    text: findShownStatement,
    values: [workspaceIds, id],
  });
  return rows[0];
}

/** Fields of a segment that users can edit. */
export interface SegmentWords {
  name: string;
  purpose: string;
  definition: Definition;
}

/**
 * Result of a change. `taken`: another segment has the name, archived or not. `gone`: the segment does not
 * exist or is archived.
 */
type SegmentEnding = 'done' | 'taken' | 'gone';

const createStatement = `
  insert into segments (id, workspace_id, name, purpose, definition)
  values ($1::uuid, $2::uuid, $3::text, $4::text, $5::jsonb)`;

/** Updates by primary key. */
const updateStatement = `
  update segments set name = $3::text, purpose = $4::text, definition = $5::jsonb, updated_at = now()
  where segments.id = $1::uuid and segments.workspace_id = $2::uuid and segments.archived_at is null`;

/** Updates by primary key. The time of the first archiving is kept. */
const archiveStatement = `
  update segments set archived_at = now()
  where segments.id = $1::uuid and segments.workspace_id = $2::uuid and segments.archived_at is null`;

interface Change {
  id: string;
  workspaceId: string;
  action: AuditAction;
  text: string;
  values: unknown[];
  detail: Record<string, string>;
}

async function change(pool: Pool, actor: Actor, one: Change): Promise<SegmentEnding> {
  const { id, workspaceId, action, text, values, detail } = one;
  try {
    return await audited<SegmentEnding>(pool, actor, async (tx) => {
      const { rowCount } = await tx.query(text, [id, workspaceId, ...values]);
      const entry = { action, subject: { kind: 'segment', id }, workspaceId, detail };
      return rowCount === 0 ? { result: 'gone', entries: [] } : { result: 'done', entries: [entry] };
    });
  } catch (error) {
    if ((error as { code?: string }).code === '23505') return 'taken';
    throw error;
  }
}

const valuesOf = ({ name, purpose, definition }: SegmentWords) => [name, purpose, JSON.stringify(definition)];

/** Creates a segment. @returns its id, or `taken` if another segment has the name */
export async function createSegment(
  pool: Pool,
  actor: Actor,
  { workspaceId, ...words }: SegmentWords & { workspaceId: string },
): Promise<{ id: string } | 'taken'> {
  const id = newId();
  const audit = { action: 'segments.create' as const, detail: { name: words.name } };
  const made = { id, workspaceId, ...audit, text: createStatement, values: valuesOf(words) };
  return (await change(pool, actor, made)) === 'taken' ? 'taken' : { id };
}

/** Updates name, purpose and filter of a segment that is not archived. */
export function updateSegment(
  pool: Pool,
  actor: Actor,
  { id, workspaceId, ...words }: SegmentWords & { id: string; workspaceId: string },
): Promise<SegmentEnding> {
  const audit = { action: 'segments.update' as const, detail: { name: words.name } };
  return change(pool, actor, { id, workspaceId, ...audit, text: updateStatement, values: valuesOf(words) });
}

/** Archives a segment. It can no longer be used, and its name stays reserved. */
export function archiveSegment(
  pool: Pool,
  actor: Actor,
  { id, workspaceId, name }: { id: string; workspaceId: string; name: string },
): Promise<SegmentEnding> {
  const audit = { action: 'segments.archive' as const, detail: { name } };
  return change(pool, actor, { id, workspaceId, ...audit, text: archiveStatement, values: [] });
}
