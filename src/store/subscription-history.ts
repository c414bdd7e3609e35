import type { Connection, Pool } from './database.ts';
import { withCitusForm } from './one-workspace.ts';
import type { GroupState } from './subscription-states.ts';

/** A change of a state that a request asks for. */
export interface StateChange {
  workspaceId: string;
  subjectKind: GroupState['subjectKind'];
  /** Address, or id of the profile. */
  subject: string;
  /** Id of a group, GLOBAL, or the name of a mark. */
  subscription: string;
  /**
   * `set`: sets the state. `taken`: sets it only if there is none, and must be the first change of its state
   * in the set. `dropped`: removes it.
   */
  how: 'set' | 'taken' | 'dropped';
  state: string;
  requestId: string;
}

/**
 * Reads the previous state from the last row of each state's history, by primary key. Must run after the
 * statements that write the states: a concurrent transaction that changes the state waits for the lock on its
 * row. Changes without effect are not recorded.
 */
const recordStateChangesStatement = withCitusForm(`
  with said as (
    select
      given.*,
      row_number() over (
        partition by given.workspace_id, given.subject_kind, given.subject, given.subscription
        order by given.place) = 1 as is_first
    from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
      with ordinality as given (
        workspace_id, subject_kind, subject, subscription, how, state, request_id, place)
  ), stored as (
    select
      said.*,
      case when said.is_first then (
        select subscription_history.to_state
        from subscription_history
        where subscription_history.workspace_id = said.workspace_id
          and subscription_history.subject_kind = said.subject_kind
          and subscription_history.subject = said.subject
          and subscription_history.subscription = said.subscription
          and subscription_history.id > coalesce((
            select dropped_histories.up_to
            from dropped_histories
            where dropped_histories.workspace_id = said.workspace_id
              and dropped_histories.subject_kind = said.subject_kind
              and dropped_histories.subject = said.subject), 0)
        order by subscription_history.id desc
        limit 1) end as state_before
    from said
  ), effective as (
    select
      stored.*,
      case stored.how
        when 'set' then stored.state
        when 'taken' then coalesce(stored.state_before, stored.state) end as state_after
    from stored
  ), chained as (
    select
      effective.*,
      case when effective.is_first then effective.state_before else lag(effective.state_after) over (
        partition by effective.workspace_id, effective.subject_kind, effective.subject, effective.subscription
        order by effective.place) end as from_state
    from effective
  )
  insert into subscription_history (
    workspace_id, subject_kind, subject, subscription, from_state, to_state, changed_at, request_id)
  select
    chained.workspace_id, chained.subject_kind, chained.subject, chained.subscription,
    chained.from_state, chained.state_after, $8::timestamptz, chained.request_id
  from chained
  where chained.from_state is distinct from chained.state_after
  order by chained.place
  returning
    subscription_history.workspace_id as "workspaceId", subscription_history.subject_kind as "subjectKind",
    subscription_history.subject, subscription_history.subscription, subscription_history.from_state as "fromState",
    subscription_history.to_state as "toState", subscription_history.request_id as "requestId"`);

/** A recorded change of a state. */
export interface RecordedState extends Omit<StateChange, 'how' | 'state'> {
  fromState: string | null;
  toState: string | null;
}

/** Records the history of states in the given order. @returns the changes that had an effect, in order */
export async function recordStateChanges(
  tx: Connection,
  changes: StateChange[],
  now: string,
): Promise<RecordedState[]> {
  const { rows } = await tx.query<RecordedState>({
    name: 'record-state-changes',
    text: recordStateChangesStatement,
    values: [
      changes.map((change) => change.workspaceId),
      changes.map((change) => change.subjectKind),
      changes.map((change) => change.subject),
      changes.map((change) => change.subscription),
      changes.map((change) => change.how),
      changes.map((change) => change.state),
      changes.map((change) => change.requestId),
      now,
    ],
  });
  return rows;
}

/** Subject of a history. */
export interface HistorySubject {
  kind: GroupState['subjectKind'];
  /** Address, or id of the profile. */
  subject: string;
}

export interface HistoryRow extends HistorySubject {
  /** Ascending in the order of the changes. */
  id: string;
  /** Id of a group, GLOBAL, or the name of a mark. */
  subscription: string;
  /** Name of the group. Null if the subscription is not a group. */
  group: string | null;
  from: string | null;
  to: string | null;
  at: Date;
  requestId: string;
}

/**
 * Reads by primary key; takes no lock. Excludes rows that were dropped with the last holder of an address.
 */
const readHistoryStatement = `
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
    and subscription_history.id > coalesce((
      select dropped_histories.up_to
      from dropped_histories
      where dropped_histories.workspace_id = $1::uuid
        and dropped_histories.subject_kind = wanted.kind
        and dropped_histories.subject = wanted.subject), 0)
  left join subscription_groups
    on subscription_groups.workspace_id = $1::uuid
    and subscription_groups.id::text = subscription_history.subscription
  order by subscription_history.id desc
  limit $5`;

const MAX_ID = '9223372036854775807';

interface HistoryPage {
  subjects: HistorySubject[];
  limit: number;
  /** Returns only rows older than the row with this id. */
  before?: string | undefined;
}

/** Returns the changes of the states of these subjects, latest first. */
export async function readHistory(
  pool: Pick<Pool, 'query'>,
  workspaceId: string,
  { subjects, limit, before = MAX_ID }: HistoryPage,
): Promise<HistoryRow[]> {
  const { rows } = await pool.query<HistoryRow>({
    name: 'read-history',
    text: readHistoryStatement,
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
