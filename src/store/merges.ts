import { type MergeRule, mergeRules } from '../profile/merge-rules.ts';
import { uuidArray } from './arrays.ts';
import type { Connection } from './database.ts';
import { marks } from './subscription-states.ts';

/** `mergedId` goes into `keptId` and is gone. In one set no profile stands in two pairs. */
export interface MergePair {
  workspaceId: string;
  mergedId: string;
  keptId: string;
  /** Of the merge. */
  requestId: string;
}

/** The table of the pairs, from the parameters $1 to $3. */
export const pairsTable =
  'unnest($1::uuid[], $2::uuid[], $3::uuid[]) as pairs (workspace_id, merged_id, kept_id)';

/** The parameters $1 to $3. */
export function pairValues(pairs: MergePair[]): Buffer[] {
  return [
    uuidArray(pairs, (pair) => pair.workspaceId),
    uuidArray(pairs, (pair) => pair.mergedId),
    uuidArray(pairs, (pair) => pair.keptId),
  ];
}

/**
 * Rows of each table that follow one merged or deleted profile at once. What is more is settled beside the lanes, so
 * that an operation costs the same whatever its user has grown to.
 */
export const ROWS_AT_ONCE = 100;

/** Most aliases of one user: they name the user, and so all of them follow a merge at once. */
export const MAX_ALIASES = 500;

/** Most external ids that lead to one user besides the one by which it goes: a delete of the user looks at each of them. */
export const MAX_DEPRECATED = 500;

/** A profile by its key. */
export interface ProfileKey {
  workspaceId: string;
  id: string;
}

/** The table of the keys, from the parameters $1 and $2. */
export const keysTable = 'unnest($1::uuid[], $2::uuid[]) as wanted (workspace_id, id)';

/** The parameters $1 and $2. */
export function keyValues(keys: ProfileKey[]): Buffer[] {
  return [uuidArray(keys, (key) => key.workspaceId), uuidArray(keys, (key) => key.id)];
}

/** The two rows, each as a table name or alias. */
export interface MergedRows {
  /** The one that stays. */
  kept: string;
  /** The one that goes. */
  merged: string;
}

/**
 * The SQL of a rule for one column, `stay` excepted, which changes nothing. `least` and `greatest` pass over null.
 */
function mergedColumn(
  rule: Exclude<MergeRule, 'stay'>,
  column: string,
  { kept, merged }: MergedRows,
): string {
  const [mine, other] = [`${kept}.${column}`, `${merged}.${column}`];
  switch (rule) {
    case 'keep':
      return `coalesce(${mine}, ${other})`;
    case 'sum':
      return `${mine} + ${other}`;
    case 'earliest':
      return `least(${mine}, ${other})`;
    case 'latest':
    case 'newest':
      return `greatest(${mine}, ${other})`;
  }
}

/** `set` clauses for all columns of a table's rules, `stay` and those of `except` left out. */
export function mergedColumns(
  rules: Record<string, MergeRule>,
  rows: MergedRows,
  except: readonly string[] = [],
): string {
  return Object.entries(rules)
    .filter(([column, rule]) => rule !== 'stay' && !except.includes(column))
    .map(([column, rule]) => `${column} = ${mergedColumn(rule as Exclude<MergeRule, 'stay'>, column, rows)}`)
    .join(',\n    ');
}

/** Those that more hangs on than the column: addresses are moved by the worker, coordinates go in pairs. */
const apart = ['email', 'phone', 'latitude', 'longitude', 'custom_attributes'];

const sideOf = (id: 'merged_id' | 'kept_id') => `(
    select profiles.*
    from profiles
    where profiles.workspace_id = pairs.workspace_id
      and profiles.id = pairs.${id}
    limit 1
  )`;

/** By primary key. A mark as spam that is new to the kept one is history. */
const tellMarksStatement = `
  with told as materialized (
    select pairs.workspace_id, pairs.kept_id, pairs.request_id
    from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[]) as pairs (workspace_id, merged_id, kept_id, request_id)
    cross join lateral ${sideOf('merged_id')} as merged
    cross join lateral ${sideOf('kept_id')} as kept
    where merged.marked_email_as_spam_at is not null and kept.marked_email_as_spam_at is null
  )
  insert into subscription_history (
    workspace_id, subject_kind, subject, subscription, from_state, to_state, changed_at, request_id)
  select told.workspace_id, 'profile', told.kept_id::text, 'spam', null, '${marks.spam}', $5::timestamptz, told.request_id
  from told`;

/** By primary key, each row for itself; both are locked already. */
const mergeProfilesStatement = `
  update profiles set
    ${mergedColumns(mergeRules.profiles, { kept: 'profiles', merged: 'merged' }, apart)},
    latitude = case when profiles.latitude is null then merged.latitude else profiles.latitude end,
    longitude = case when profiles.latitude is null then merged.longitude else profiles.longitude end,
    custom_attributes = merged.custom_attributes || profiles.custom_attributes
  from ${pairsTable}
  cross join lateral ${sideOf('merged_id')} as merged
  where profiles.workspace_id = pairs.workspace_id
    and profiles.id = pairs.kept_id`;

/** Gives the kept profiles what they lack, by the rules of `mergeRules`. */
export async function mergeProfiles(tx: Connection, pairs: MergePair[], now: string): Promise<void> {
  const keys = pairValues(pairs);
  const requests = pairs.map(({ requestId }) => requestId);
  await Promise.all([
    tx.query({ name: 'tell-merged-marks', text: tellMarksStatement, values: [...keys, requests, now] }),
    tx.query({ name: 'merge-profiles', text: mergeProfilesStatement, values: keys }),
  ]);
}

/**
 * A forwarding row for each merge: from now on the events and purchases of the merged profile are the kept one's, wherever they
 * lie. The second row asks for a look at what comes late.
 */
const recordMergesStatement = `
  with moved as (
    insert into merged_profiles (workspace_id, profile_id, kept_id, merged_at)
    select pairs.workspace_id, pairs.merged_id, pairs.kept_id, $4::timestamptz
    from ${pairsTable}
  )
  insert into removed_profiles (workspace_id, profile_id, fate, removed_at)
  select pairs.workspace_id, pairs.merged_id, 'merged', $4::timestamptz
  from ${pairsTable}`;

export async function recordMerges(tx: Connection, pairs: MergePair[], now: string): Promise<void> {
  await tx.query({ name: 'record-merges', text: recordMergesStatement, values: [...pairValues(pairs), now] });
}
