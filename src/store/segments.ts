import type { Prisma } from '../generated/prisma/client.ts';
import { nowDate } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';
import type { Definition } from '../profile/segment.ts';
import { type Actor, type AuditAction, auditedByPrisma } from './audit.ts';
import type { Database, Pool } from './database.ts';
import { sqlstateOf } from './error-cause.ts';
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
  /** Number of users that each part of the filter matches. */
  parts: number[];
}

/**
 * Reads a range of the primary key, then makes one lookup per user and condition. A subquery with a limit keeps its
 * columns, so that Postgres evaluates a condition once for each user.
 *
 * @param whole SQL on `page.part_0`, `page.part_1` and so on, which are the conditions
 */
const evaluateStatement = (conditions: readonly string[], whole: string) => `
  select
    count(*)::integer as read,
    (count(*) filter (where ${whole}))::integer as matched,
    coalesce((array_agg(page.id order by page.id) filter (where ${whole}))[1:$4::integer], '{}') as sample,
    (array_agg(page.id order by page.id desc))[1] as last,
    array[${conditions.map((_, index) => `count(*) filter (where page.part_${index})`).join(', ')}]::integer[] as parts
  from (
    select ${['profiles.id', ...conditions.map((condition, index) => `${condition} as part_${index}`)].join(', ')}
    from profiles
    where profiles.workspace_id = $1::uuid and profiles.id > $2::uuid
    order by profiles.workspace_id, profiles.id
    limit $3::integer
  ) as page`;

/** A filter and a page of a workspace's users. */
interface Part {
  workspaceId: string;
  definition: Definition;
  /** Whether each filter in `all` or `any` is a part of its own. Default: the whole filter is one part. */
  bySubfilter?: boolean;
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
  { workspaceId, definition, bySubfilter = false, after, limit, sample }: Part,
): Promise<EvaluatedUsers> {
  const { parts, operator } = bySubfilter ? partsOf(definition) : { parts: [definition], operator: 'and' };
  const values: unknown[] = [workspaceId, after, limit, sample];
  const conditions = parts.map((part) => {
    const condition = conditionOf(part, values.length);
    values.push(...condition.values);
    return condition.text;
  });
  const whole = conditions.map((_, index) => `page.part_${index}`).join(` ${operator} `) || 'true';
  const { rows } = await pool.query<Omit<EvaluatedUsers, 'last'> & { last: string | null }>({
    text: evaluateStatement(conditions, whole),
    values,
  });
  return { ...rows[0]!, last: rows[0]!.last ?? undefined };
}

/** Returns the filters of `all` or `any` with their operator; another filter is its only part. */
function partsOf(definition: Definition): { parts: readonly Definition[]; operator: string } {
  if ('all' in definition) return { parts: definition.all, operator: 'and' };
  // Without filters, `any` matches no user.
  if ('any' in definition && definition.any.length > 0) return { parts: definition.any, operator: 'or' };
  return { parts: [definition], operator: 'and' };
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

/**
 * Returns a segment of the workspace. Undefined if it does not exist or is archived. Sync calls this function and does
 * not load the client.
 */
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

/** Returns a page of a workspace's segments including archived ones, newest first. */
export async function listShownSegments(
  { prisma }: Pick<Database, 'prisma'>,
  workspaceId: string,
  { before, limit }: { before?: string | undefined; limit: number },
): Promise<ShownSegment[]> {
  const rows = await prisma.segment.findMany({
    where: { workspaceId, ...(before !== undefined && { id: { lt: before } }) },
    orderBy: [{ workspaceId: 'desc' }, { id: 'desc' }],
    take: limit,
  });
  return rows as unknown as ShownSegment[];
}

/** Returns a segment of one of the workspaces, archived or not. */
export async function findShownSegment(
  { prisma }: Pick<Database, 'prisma'>,
  workspaceIds: readonly string[],
  id: string,
): Promise<ShownSegment | undefined> {
  const row = await prisma.segment.findFirst({ where: { workspaceId: { in: [...workspaceIds] }, id } });
  return (row as unknown as ShownSegment | null) ?? undefined;
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

interface Change {
  id: string;
  workspaceId: string;
  action: AuditAction;
  /** Name of the segment after the change. */
  name: string;
  /** Returns the number of rows that it has changed. */
  write(tx: Prisma.TransactionClient): Promise<number>;
}

/** Commits a change and its audit entry in one transaction. */
async function change(
  { prisma }: Pick<Database, 'prisma'>,
  actor: Actor,
  { id, workspaceId, action, name, write }: Change,
): Promise<SegmentEnding> {
  try {
    return await auditedByPrisma<SegmentEnding>(prisma, actor, async (tx) => {
      if ((await write(tx)) === 0) return { result: 'gone', entries: [] };
      const entry = { action, subject: { kind: 'segment', id }, workspaceId, detail: { name } };
      return { result: 'done', entries: [entry] };
    });
  } catch (error) {
    if (sqlstateOf(error) === '23505') return 'taken';
    throw error;
  }
}

const stored = ({ name, purpose, definition }: SegmentWords) => ({
  ...{ name, purpose },
  definition: definition as Prisma.InputJsonObject,
});

/** Creates a segment. @returns its id, or `taken` if another segment has the name */
export async function createSegment(
  database: Pick<Database, 'prisma'>,
  actor: Actor,
  { workspaceId, ...words }: SegmentWords & { workspaceId: string },
): Promise<{ id: string } | 'taken'> {
  const id = newId();
  async function write(tx: Prisma.TransactionClient): Promise<number> {
    await tx.segment.create({ data: { id, workspaceId, ...stored(words) } });
    return 1;
  }
  const made: Change = { id, workspaceId, action: 'segments.create', name: words.name, write };
  return (await change(database, actor, made)) === 'taken' ? 'taken' : { id };
}

/** Updates name, purpose and filter of a segment that is not archived. */
export function updateSegment(
  database: Pick<Database, 'prisma'>,
  actor: Actor,
  { id, workspaceId, ...words }: SegmentWords & { id: string; workspaceId: string },
): Promise<SegmentEnding> {
  async function write(tx: Prisma.TransactionClient): Promise<number> {
    const where = { id, workspaceId, archivedAt: null };
    return (await tx.segment.updateMany({ where, data: { ...stored(words), updatedAt: nowDate() } })).count;
  }
  return change(database, actor, { id, workspaceId, action: 'segments.update', name: words.name, write });
}

/**
 * Archives a segment. It can no longer be used, and its name stays reserved. The time of the first archiving is kept.
 */
export function archiveSegment(
  database: Pick<Database, 'prisma'>,
  actor: Actor,
  { id, workspaceId, name }: { id: string; workspaceId: string; name: string },
): Promise<SegmentEnding> {
  async function write(tx: Prisma.TransactionClient): Promise<number> {
    const where = { id, workspaceId, archivedAt: null };
    return (await tx.segment.updateMany({ where, data: { archivedAt: nowDate() } })).count;
  }
  return change(database, actor, { id, workspaceId, action: 'segments.archive', name, write });
}
