import type { Connection } from '../database.ts';
import { keysTable, keyValues, type ProfileKey } from './pair.ts';

/** What hangs on a profile and is written under its lock, by the indexes on its id. */
const dependents = ['user_aliases', 'deprecated_external_ids', 'push_tokens', 'app_summaries'];

const statement = `
  with wanted as (
    select * from ${keysTable}
  ),
  ${dependents
    .map(
      (table) => `${table}_gone as (
    delete from ${table} using wanted
    where ${table}.workspace_id = wanted.workspace_id and ${table}.profile_id = wanted.id
  )`,
    )
    .join(',\n  ')},
  subscription_states_gone as (
    delete from subscription_states using wanted
    where subscription_states.workspace_id = wanted.workspace_id
      and subscription_states.subject_kind = 'profile'
      and subscription_states.subject = wanted.id::text
  ),
  subscription_history_gone as (
    delete from subscription_history using wanted
    where subscription_history.workspace_id = wanted.workspace_id
      and subscription_history.subject_kind = 'profile'
      and subscription_history.subject = wanted.id::text
  )
  delete from profiles using wanted
  where profiles.workspace_id = wanted.workspace_id and profiles.id = wanted.id`;

/**
 * Takes profiles away, with all that is theirs alone. Their rows are locked already. Events and purchases stay:
 * whoever took a merged profile in refers to them, and those of a deleted one are erased later. So do their sums,
 * which lock no profile: one that another lane has committed since a merge took the others is still to be counted.
 */
export async function removeProfiles(tx: Connection, keys: ProfileKey[]): Promise<void> {
  await tx.query({ name: 'remove-profiles', text: statement, values: keyValues(keys) });
}
