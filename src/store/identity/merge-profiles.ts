import { mergeRules } from '../../profile/merge-rules.ts';
import type { Connection } from '../database.ts';
import { mergedColumns } from './merge-sql.ts';
import { type MergePair, pairsTable, pairValues } from './pair.ts';

/** Those that more hangs on than the column: addresses are moved by the worker, coordinates go in pairs. */
const apart = ['email', 'phone', 'latitude', 'longitude', 'custom_attributes'];

/** By primary key, each row for itself; both are locked already. */
const statement = `
  update profiles set
    ${mergedColumns(mergeRules.profiles, 'profiles', 'merged', apart)},
    latitude = case when profiles.latitude is null then merged.latitude else profiles.latitude end,
    longitude = case when profiles.latitude is null then merged.longitude else profiles.longitude end,
    custom_attributes = merged.custom_attributes || profiles.custom_attributes
  from ${pairsTable}
  cross join lateral (
    select profiles.*
    from profiles
    where profiles.workspace_id = pairs.workspace_id
      and profiles.id = pairs.merged_id
    limit 1
  ) as merged
  where profiles.workspace_id = pairs.workspace_id
    and profiles.id = pairs.kept_id`;

/** Gives the kept profiles what they lack, by the rules of `mergeRules`. */
export async function mergeProfiles(tx: Connection, pairs: MergePair[]): Promise<void> {
  await tx.query({ name: 'merge-profiles', text: statement, values: pairValues(pairs) });
}
