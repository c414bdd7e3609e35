import { mergeRules } from '../../profile/merge-rules.ts';
import type { Connection } from '../database.ts';
import { marks } from '../subscriptions/marks.ts';
import { mergedColumns } from './merge-sql.ts';
import { type MergePair, pairsTable, pairValues } from './pair.ts';

/** Those that more hangs on than the column: addresses are moved by the worker, coordinates go in pairs. */
const apart = ['email', 'phone', 'latitude', 'longitude', 'custom_attributes'];

const sideOf = (id: 'merged_id' | 'kept_id') => `(
    select profiles.*
    from profiles
    where profiles.workspace_id = pairs.workspace_id
      and profiles.id = pairs.${id}
    limit 1
  )`;

/** By primary key, each row for itself; both are locked already. A mark as spam that is new to the kept one is history. */
const statement = `
  with told as (
    insert into subscription_history (
      workspace_id, subject_kind, subject, subscription, from_state, to_state, changed_at, request_id)
    select pairs.workspace_id, 'profile', pairs.kept_id::text, 'spam', null, '${marks.spam}', $5::timestamptz, pairs.request_id
    from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[]) as pairs (workspace_id, merged_id, kept_id, request_id)
    cross join lateral ${sideOf('merged_id')} as merged
    cross join lateral ${sideOf('kept_id')} as kept
    where merged.marked_email_as_spam_at is not null and kept.marked_email_as_spam_at is null
  )
  update profiles set
    ${mergedColumns(mergeRules.profiles, 'profiles', 'merged', apart)},
    latitude = case when profiles.latitude is null then merged.latitude else profiles.latitude end,
    longitude = case when profiles.latitude is null then merged.longitude else profiles.longitude end,
    custom_attributes = merged.custom_attributes || profiles.custom_attributes
  from ${pairsTable}
  cross join lateral ${sideOf('merged_id')} as merged
  where profiles.workspace_id = pairs.workspace_id
    and profiles.id = pairs.kept_id`;

/** Gives the kept profiles what they lack, by the rules of `mergeRules`. */
export async function mergeProfiles(tx: Connection, pairs: MergePair[], now: Date): Promise<void> {
  await tx.query({
    name: 'merge-profiles',
    text: statement,
    values: [...pairValues(pairs), pairs.map(({ request_id }) => request_id), now],
  });
}
