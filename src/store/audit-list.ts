import type { Json } from '../profile/json.ts';
import type { AuditVia } from './audit.ts';
import type { Pool } from './database.ts';

/** One entry, as it was written. */
export interface AuditRow {
  id: string;
  at: Date;
  companyId: string;
  workspaceId: string | null;
  /** As it is now; null: it is about no workspace. */
  workspace: string | null;
  actorKind: string;
  actorId: string | null;
  actorName: string;
  via: AuditVia;
  address: string | null;
  action: string;
  subjectKind: string;
  subjectId: string;
  detail: Record<string, Json>;
}

export interface AuditSearch {
  /** Absent: those of all companies, and of the installation. */
  companyId?: string | undefined;
  action?: string | undefined;
  /** The actor's name, in full. */
  actor?: string | undefined;
  /** Whose entries are left out. */
  exceptKind?: 'operator' | undefined;
  /** The subject's id, in full. */
  subject?: string | undefined;
  /** From this moment on, and before that one. */
  from?: Date | undefined;
  to?: Date | undefined;
  /** Behind this entry: only older ones. */
  before?: string | undefined;
  limit: number;
}

/** Most entries that one search looks through where no index knows what is wanted. */
export const MOST_LOOKED_THROUGH = 5000;

export interface AuditPage {
  rows: AuditRow[];
  /** Behind which the next page begins; absent: there is none. */
  next: string | undefined;
  /** How many entries were read for it. */
  looked: number;
}

/**
 * A page of the audit, the latest first. Along the index that knows most of what is wanted. At most
 * `MOST_LOOKED_THROUGH` of what it leads to are read, so that a page may be short, or empty, and have a next one.
 */
export async function searchAudit(pool: Pool, search: AuditSearch): Promise<AuditPage> {
  const { companyId, action, actor, exceptKind, subject, from, to, before, limit } = search;
  const values: unknown[] = [];
  const is = (column: string, value: unknown, type: string) =>
    `audit.${column} = $${values.push(value)}::${type}`;
  /** What the walk goes along, and what is looked at on the way. */
  const along: string[] = [];
  const beside: string[] = [];
  const add = (isAlong: boolean, condition: string) => (isAlong ? along : beside).push(condition);
  if (companyId !== undefined && subject === undefined) add(true, is('company_id', companyId, 'uuid'));
  if (companyId !== undefined && subject !== undefined) add(false, is('company_id', companyId, 'uuid'));
  if (subject !== undefined) add(true, is('subject_id', subject, 'text'));
  const hasIndex = companyId !== undefined && subject === undefined;
  if (actor !== undefined) add(hasIndex, is('actor_name', actor, 'text'));
  if (exceptKind !== undefined) beside.push(`audit.actor_kind <> $${values.push(exceptKind)}::text`);
  if (action !== undefined) add(hasIndex && actor === undefined, is('action', action, 'text'));
  if (before !== undefined) along.push(`audit.id < $${values.push(before)}::uuid`);
  if (from) along.push(`audit.id >= uuid_v7_floor($${values.push(from)}::timestamptz)`);
  if (to) along.push(`audit.id < uuid_v7_floor($${values.push(to)}::timestamptz)`);
  const where = (conditions: string[]) =>
    conditions.length === 0 ? '' : `where ${conditions.join(' and ')}`;
  const wanted = `$${values.push(limit + 1)}::integer`;
  const text = `
    with looked as materialized (
      select audit.*
      from audit
      ${where(along)}
      order by audit.id desc
      limit ${beside.length === 0 ? wanted : MOST_LOOKED_THROUGH}
    ),
    found as (
      select audit.*
      from looked as audit
      ${where(beside)}
      order by audit.id desc
      limit ${wanted}
    ),
    edge as (
      select count(*)::integer as count, (array_agg(looked.id order by looked.id))[1] as last from looked
    )
    select found.id, found.at, found.company_id as "companyId", found.workspace_id as "workspaceId",
      workspaces.name as workspace, found.actor_kind as "actorKind", found.actor_id as "actorId",
      found.actor_name as "actorName", found.via, found.address, found.action,
      found.subject_kind as "subjectKind", found.subject_id as "subjectId", found.detail,
      case when edge.count = ${MOST_LOOKED_THROUGH} then edge.last end as last, edge.count as looked
    from edge
    left join found on true
    left join workspaces on workspaces.id = found.workspace_id
    order by found.id desc`;
  const { rows } = await pool.query<AuditRow & { last: string | null; looked: number }>(text, values);
  const last = rows[0]?.last ?? undefined;
  const found = rows.filter(({ id }) => id !== null).map(({ last: _, looked: __, ...row }) => row);
  const next = found.length > limit ? found[limit - 1]!.id : last;
  return { rows: found.slice(0, limit), next, looked: rows[0]?.looked ?? 0 };
}

// By a range of the primary key: ids begin with their time. What another worker deletes at this moment is passed over.
const forgetAuditStatement = `
  delete from audit
  where audit.id in (
    select old.id
    from audit as old
    where old.id < uuid_v7_floor(now() - make_interval(days => $1::integer))
    order by old.id
    limit $2::integer
    for update skip locked)`;

/** Entries of one statement. */
const SLICE = 10_000;

/** Forgets entries that are older than so many days, slice by slice. */
export async function forgetAudit(pool: Pool, days: number): Promise<void> {
  for (let forgotten = SLICE; forgotten === SLICE; ) {
    const { rowCount } = await pool.query(forgetAuditStatement, [days, SLICE]);
    forgotten = rowCount ?? 0;
  }
}
