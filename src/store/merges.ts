import { mergeRules } from '../profile/merge-rules.ts';
import type { MergeRule } from '../profile/standard-columns.ts';
import { uuidArray } from './arrays.ts';
import type { Connection } from './database.ts';
import { withCitusForm } from './one-workspace.ts';
import { marks } from './subscription-states.ts';

/** A merge: `mergedId` is merged into `keptId` and removed. In one set, a profile occurs in only one pair. */
export interface MergePair {
  workspaceId: string;
  mergedId: string;
  keptId: string;
  /** Request id of the merge. */
  requestId: string;
}

/** Set of the pairs from the parameters $1 to $3. */
export const pairsTable =
  'unnest($1::uuid[], $2::uuid[], $3::uuid[]) as pairs (workspace_id, merged_id, kept_id)';

/** Returns the parameters $1 to $3. */
export function pairValues(pairs: MergePair[]): Buffer[] {
  return [
    uuidArray(pairs, (pair) => pair.workspaceId),
    uuidArray(pairs, (pair) => pair.mergedId),
    uuidArray(pairs, (pair) => pair.keptId),
  ];
}

/**
 * Maximum number of rows per table that one merge or delete processes in its transaction. The rest is
 * processed in the background, so that the cost of an operation does not grow with its user.
 */
export const ROWS_AT_ONCE = 100;

/** Maximum number of aliases of a user. They identify the user, so a merge moves all of them at once. */
export const MAX_ALIASES = 500;

/**
 * Maximum number of additional (deprecated) external ids of a user. A delete of the user reads all of them.
 */
export const MAX_DEPRECATED = 500;

/** Key of a profile. */
export interface ProfileKey {
  workspaceId: string;
  id: string;
}

/** Set of the keys from the parameters $1 and $2. */
export const keysTable = 'unnest($1::uuid[], $2::uuid[]) as wanted (workspace_id, id)';

/** Returns the parameters $1 and $2. */
export function keyValues(keys: ProfileKey[]): Buffer[] {
  return [uuidArray(keys, (key) => key.workspaceId), uuidArray(keys, (key) => key.id)];
}

/** Maximum characters of joined entries, so that many merges do not make a long text. */
const JOINED_CHARACTERS = 1024;

/** The two rows of a merge, as table names or aliases. */
interface MergedRows {
  /** The row that is kept. */
  kept: string;
  /** The row that is removed. */
  merged: string;
}

/** Returns the SQL of a merge rule for one column. `least` and `greatest` ignore null. */
function mergedColumn(
  rule: Exclude<MergeRule, 'stay'>,
  column: string,
  { kept, merged }: MergedRows,
): string {
  const [own, other] = [`${kept}.${column}`, `${merged}.${column}`];
  switch (rule) {
    case 'keep':
      return `coalesce(${own}, ${other})`;
    case 'sum':
      return `${own} + ${other}`;
    case 'earliest':
      return `least(${own}, ${other})`;
    case 'latest':
    case 'newest':
      return `greatest(${own}, ${other})`;
    case 'join':
      // An incomplete entry at the end of the first value is removed. `concat` would not be immutable, as Citus requires.
      return `nullif(left(coalesce(regexp_replace(${own}, '[^\\x1e]*$', ''), '') || coalesce(${other}, ''), ${JOINED_CHARACTERS}), '')`;
  }
}

/** Returns the `set` clauses of all columns with a rule, except those with `stay` and those in `except`. */
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

/** Columns with additional logic: the worker moves addresses, and coordinates are merged as a pair. */
const separateColumns = ['email', 'phone', 'latitude', 'longitude', 'custom_attributes'];

const sideOf = (id: 'merged_id' | 'kept_id') => `(
    select profiles.*
    from profiles
    where profiles.workspace_id = pairs.workspace_id
      and profiles.id = pairs.${id}
    limit 1
  )`;

/** Inserts by primary key. Records a spam mark that is new to the kept profile in the history. */
const recordMarksStatement = withCitusForm(`
  with reported as materialized (
    select pairs.workspace_id, pairs.kept_id, pairs.request_id
    from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[]) as pairs (workspace_id, merged_id, kept_id, request_id)
    cross join lateral ${sideOf('merged_id')} as merged
    cross join lateral ${sideOf('kept_id')} as kept
    where merged.marked_email_as_spam_at is not null and kept.marked_email_as_spam_at is null
  )
  insert into subscription_history (
    workspace_id, subject_kind, subject, subscription, from_state, to_state, changed_at, request_id)
  select reported.workspace_id, 'profile', reported.kept_id::text, 'spam', null, '${marks.spam}', $5::timestamptz, reported.request_id
  from reported`);

/** Updates by primary key. Both rows are locked already. */
const mergeProfilesStatement = withCitusForm(`
  update profiles set
    ${mergedColumns(mergeRules.profiles, { kept: 'profiles', merged: 'merged' }, separateColumns)},
    latitude = case when profiles.latitude is null then merged.latitude else profiles.latitude end,
    longitude = case when profiles.latitude is null then merged.longitude else profiles.longitude end,
    custom_attributes = merged.custom_attributes || profiles.custom_attributes
  from ${pairsTable}
  cross join lateral ${sideOf('merged_id')} as merged
  where profiles.workspace_id = pairs.workspace_id
    and profiles.id = pairs.kept_id`);

/** Fills missing values of the kept profiles by the rules of `mergeRules`. */
export async function mergeProfiles(tx: Connection, pairs: MergePair[], now: string): Promise<void> {
  const keys = pairValues(pairs);
  const requests = pairs.map(({ requestId }) => requestId);
  await Promise.all([
    tx.query({ name: 'tell-merged-marks', text: recordMarksStatement, values: [...keys, requests, now] }),
    tx.query({ name: 'merge-profiles', text: mergeProfilesStatement, values: keys }),
  ]);
}

/**
 * Inserts a forwarding row for each merge: from now on, events and purchases of the merged profile belong to
 * the kept profile. The tombstone makes a background job move late rows.
 */
const recordMergesStatement = withCitusForm(`
  with moved as (
    insert into merged_profiles (workspace_id, profile_id, kept_id, merged_at, external_id)
    select pairs.workspace_id, pairs.merged_id, pairs.kept_id, $4::timestamptz, (
      select profiles.external_id
      from profiles
      where profiles.workspace_id = pairs.workspace_id and profiles.id = pairs.merged_id
      limit 1)
    from ${pairsTable}
  )
  insert into removed_profiles (workspace_id, profile_id, fate, removed_at)
  select pairs.workspace_id, pairs.merged_id, 'merged', $4::timestamptz
  from ${pairsTable}`);

export async function recordMerges(tx: Connection, pairs: MergePair[], now: string): Promise<void> {
  await tx.query({ name: 'record-merges', text: recordMergesStatement, values: [...pairValues(pairs), now] });
}
