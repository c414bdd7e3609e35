import { takePage } from '../platform/paging.ts';
import type { Json } from '../profile/json.ts';
import type { AuditVia } from './audit.ts';
import type { Pool } from './database.ts';

/** A stored audit entry. */
export interface AuditRow {
  id: string;
  at: Date;
  companyId: string;
  workspaceId: string | null;
  /** Current name of the workspace. Null if the entry concerns no workspace. */
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
  /** Company of the entries; entries of all companies and of the installation if absent. */
  companyId?: string | undefined;
  action?: string | undefined;
  /** Full name of the actor. */
  actor?: string | undefined;
  /** Kind of actor whose entries are excluded. */
  exceptKind?: 'operator' | undefined;
  /** Full id of the subject. */
  subject?: string | undefined;
  /** Time range, including `from` and excluding `to`. */
  from?: Date | undefined;
  to?: Date | undefined;
  /** Id of the entry before which the page begins; only older entries are returned. */
  before?: string | undefined;
  limit: number;
}

/** Maximum number of entries that one search reads if no index covers all conditions. */
export const MAX_SCANNED = 5000;

interface AuditPage {
  rows: AuditRow[];
  /** Id with which the next page begins. Absent if there is no next page. */
  next: string | undefined;
  /** Number of entries that were read. */
  looked: number;
}

/**
 * Returns a page of the audit log, latest first, by the index that covers most of the conditions. Reads at
 * most `MAX_SCANNED` entries, so a page may be short or empty and still have a next one.
 */
export async function searchAudit(pool: Pool, search: AuditSearch): Promise<AuditPage> {
  const { companyId, action, actor, exceptKind, subject, from, to, before, limit } = search;
  const values: unknown[] = [];
  const is = (column: string, value: unknown, type: string) =>
    `audit.${column} = $${values.push(value)}::${type}`;
  /** Conditions that the index covers, and conditions that are checked for each entry. */
  const indexed: string[] = [];
  const filtered: string[] = [];
  const add = (isIndexed: boolean, condition: string) => (isIndexed ? indexed : filtered).push(condition);
  if (companyId !== undefined && subject === undefined) add(true, is('company_id', companyId, 'uuid'));
  if (companyId !== undefined && subject !== undefined) add(false, is('company_id', companyId, 'uuid'));
  if (subject !== undefined) add(true, is('subject_id', subject, 'text'));
  const hasIndex = companyId !== undefined && subject === undefined;
  if (actor !== undefined) add(hasIndex, is('actor_name', actor, 'text'));
  if (exceptKind !== undefined) filtered.push(`audit.actor_kind <> $${values.push(exceptKind)}::text`);
  if (action !== undefined) add(hasIndex && actor === undefined, is('action', action, 'text'));
  if (before !== undefined) indexed.push(`audit.id < $${values.push(before)}::uuid`);
  if (from) indexed.push(`audit.id >= uuid_v7_floor($${values.push(from)}::timestamptz)`);
  if (to) indexed.push(`audit.id < uuid_v7_floor($${values.push(to)}::timestamptz)`);
  const where = (conditions: string[]) =>
    conditions.length === 0 ? '' : `where ${conditions.join(' and ')}`;
  const wanted = `$${values.push(limit + 1)}::integer`;
  const text = `
    with looked as materialized (
      select audit.*
      from audit
      ${where(indexed)}
      order by audit.id desc
      limit ${filtered.length === 0 ? wanted : MAX_SCANNED}
    ),
    found as (
      select audit.*
      from looked as audit
      ${where(filtered)}
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
      case when edge.count = ${MAX_SCANNED} then edge.last end as last, edge.count as looked
    from edge
    left join found on true
    left join workspaces on workspaces.id = found.workspace_id
    order by found.id desc`;
  const { rows } = await pool.query<AuditRow & { last: string | null; looked: number }>(text, values);
  const last = rows[0]?.last ?? undefined;
  const entries = rows.filter(({ id }) => id !== null).map(({ last: _, looked: __, ...row }) => row);
  const page = takePage(entries, limit, ({ id }) => id);
  return { rows: page.rows, next: page.next ?? last, looked: rows[0]?.looked ?? 0 };
}

// Deletes a range of the primary key, because ids start with their time. Skips rows that another worker is
// deleting.
const forgetAuditStatement = `
  delete from audit
  where audit.id in (
    select old.id
    from audit as old
    where old.id < uuid_v7_floor(now() - make_interval(days => $1::integer))
    order by old.id
    limit $2::integer
    for update skip locked)`;

/** Entries per statement. */
const SLICE = 10_000;

/** Deletes entries that are older than `days`, in slices. */
export async function forgetAudit(pool: Pool, days: number): Promise<void> {
  for (let forgotten = SLICE; forgotten === SLICE; ) {
    const { rowCount } = await pool.query(forgetAuditStatement, [days, SLICE]);
    forgotten = rowCount ?? 0;
  }
}
