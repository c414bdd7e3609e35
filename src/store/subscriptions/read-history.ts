import type { Pool } from '../database.ts';
import type { GroupState } from './set-subscription-states.ts';

/** Whose history it is. */
export interface HistorySubject {
  kind: GroupState['subject_kind'];
  /** The address, or the profile's id. */
  subject: string;
}

export interface HistoryRow extends HistorySubject {
  /** Ascending in the order of the changes. */
  id: string;
  /** A group's id, GLOBAL, or a mark's name. */
  subscription: string;
  /** Of the group; null for what is none. */
  group: string | null;
  from: string | null;
  to: string | null;
  at: Date;
  requestId: string;
}

/** By primary key, all rows of the subjects; locks nothing. */
const statement = `
  select
    subscription_history.id::text,
    subscription_history.subject_kind as kind,
    subscription_history.subject,
    subscription_history.subscription,
    subscription_groups.name as "group",
    subscription_history.from_state as "from",
    subscription_history.to_state as "to",
    subscription_history.changed_at as at,
    subscription_history.request_id as "requestId"
  from unnest($2::text[], $3::text[]) as wanted (kind, subject)
  join subscription_history
    on subscription_history.workspace_id = $1::uuid
    and subscription_history.subject_kind = wanted.kind
    and subscription_history.subject = wanted.subject
    and subscription_history.id < $4::bigint
  left join subscription_groups
    on subscription_groups.workspace_id = $1::uuid
    and subscription_groups.id::text = subscription_history.subscription
  order by subscription_history.id desc
  limit $5`;

const LARGEST = '9223372036854775807';

/**
 * What became of the states of these subjects, the latest first.
 *
 * @param before only rows older than the one with this id
 */
export async function readHistory(
  pool: Pool,
  workspaceId: string,
  subjects: HistorySubject[],
  { limit, before = LARGEST }: { limit: number; before?: string | undefined },
): Promise<HistoryRow[]> {
  const { rows } = await pool.query<HistoryRow>({
    name: 'read-history',
    text: statement,
    values: [
      workspaceId,
      subjects.map(({ kind }) => kind),
      subjects.map(({ subject }) => subject),
      before,
      limit,
    ],
  });
  return rows;
}
