import type { Connection } from '../../src/store/database.ts';
import { formOf } from '../../tools/generate/citus-forms.ts';
import type { WorkItem } from '../../workers/batch/work-item.ts';

/** Reads all rows of users; `chain` resolves merged profiles to the owner of their events. */
const users = `
  with recursive chain as (
    select profiles.id as owner, profiles.id as did from profiles where profiles.workspace_id = $1
    union all
    select chain.owner, merged_profiles.profile_id
    from chain
    join merged_profiles on merged_profiles.workspace_id = $1 and merged_profiles.kept_id = chain.did
  )
  select
    -- The column attribute_changes has an entry for each batch, and so depends on how objects are divided into batches.
    to_jsonb(profiles) - '{workspace_id,id,updated_at,attribute_changes}'::text[] as profile,
    greatest(
      updated_at,
      (select max(updated_at) from event_summaries where workspace_id = $1 and profile_id = profiles.id),
      (select max(updated_at) from purchase_summaries where workspace_id = $1 and profile_id = profiles.id)
    )::text as seen,
    (select jsonb_agg(alias_label || ':' || alias_name order by alias_label)
      from user_aliases where workspace_id = $1 and profile_id = profiles.id) as aliases,
    (select jsonb_agg(external_id order by external_id)
      from deprecated_external_ids where workspace_id = $1 and profile_id = profiles.id) as deprecated,
    (select jsonb_agg(token order by token)
      from push_tokens where workspace_id = $1 and profile_id = profiles.id) as tokens,
    (select jsonb_agg(to_jsonb(event_summaries) - '{workspace_id,profile_id,updated_at}'::text[] order by name)
      from event_summaries where workspace_id = $1 and profile_id = profiles.id) as events,
    (select jsonb_agg(to_jsonb(purchase_summaries) - '{workspace_id,profile_id,updated_at}'::text[]
        order by product_id, currency)
      from purchase_summaries where workspace_id = $1 and profile_id = profiles.id) as purchases,
    (select count(*) from events join chain on did = events.profile_id
      where workspace_id = $1 and owner = profiles.id) as raw_events,
    (select count(*) from purchases join chain on did = purchases.profile_id
      where workspace_id = $1 and owner = profiles.id) as raw_purchases,
    (select jsonb_agg(array[subscription_groups.name, state] order by subscription_groups.name)
      from subscription_states join subscription_groups on subscription_groups.id = subscription_group_id
      where subscription_states.workspace_id = $1 and subject_kind = 'profile'
        and subject = profiles.id::text) as states
  from profiles
  where profiles.workspace_id = $1`;

/** Reads rows that belong to no single user. A row of a removed profile would be an error. */
const others = `
  select 'email' as what, array[email, state, (hard_bounced_at is not null)::text] as row
  from email_addresses where workspace_id = $1
  union all
  select 'state', array[subject, subscription_groups.name, state]
  from subscription_states join subscription_groups on subscription_groups.id = subscription_group_id
  where subscription_states.workspace_id = $1 and subject_kind <> 'profile'
  union all
  select 'removed', array[fate, count(*)::text] from removed_profiles where workspace_id = $1 group by fate
  union all
  select 'merged', array[count(*)::text] from merged_profiles where workspace_id = $1
  union all
  select 'events', array[count(*)::text] from events where workspace_id = $1
  union all
  ${['user_aliases', 'deprecated_external_ids', 'push_tokens', 'event_summaries', 'purchase_summaries']
    .map((table) => `select '${table}', array[count(*)::text] from ${table} where workspace_id = $1`)
    .join(' union all ')}
  order by what, row`;

/** Reads the last state of each subject in the history. A profile has a different id in each workspace. */
const storedState = `
  select distinct on (subject_kind, subject, subscription)
    subject_kind, subject, subscription, to_state as state
  from subscription_history where workspace_id = $1
  order by subject_kind, subject, subscription, id desc`;

/** Reads the stored states. */
const stored = `
  select subject_kind, subject, subscription_group_id::text as subscription, state
  from subscription_states where workspace_id = $1
  union all
  select 'email', email, '', state from email_addresses where workspace_id = $1 and state is not null
  union all
  select 'profile', id::text, '', email_subscribe from profiles where workspace_id = $1 and email_subscribe is not null
  union all
  select 'email', email, 'hard_bounce', 'hard_bounced' from email_addresses
  where workspace_id = $1 and hard_bounced_at is not null
  union all
  select 'profile', id::text, 'spam', 'marked_as_spam' from profiles
  where workspace_id = $1 and marked_email_as_spam_at is not null`;

/** Reads the differences between history and states, of which there must be none. */
const untold = `
  (select * from (${storedState}) as told where state is not null except (${stored}))
  union all
  ((${stored}) except select * from (${storedState}) as told)`;

/** Counts the changes of each state of an address. */
const history = `
  select subject, coalesce(subscription_groups.name, subscription) as name, from_state, to_state, count(*)::int
  from subscription_history
  left join subscription_groups on subscription_groups.id::text = subscription
  where subscription_history.workspace_id = $1 and subject_kind <> 'profile'
  group by 1, 2, 3, 4 order by 1, 2, 3, 4`;

/** Restricted to one workspace, so that a distributed Postgres accepts it too. */
const keptLetters = formOf(
  'select kept.id from kept_dead_letters as kept where kept.workspace_id = $1::uuid',
).text;

/**
 * Reads everything that the store has of a workspace except ids, so that two workspaces with the same
 * operations are equal.
 * @param items applied objects: dead letters and outcomes are identified by their positions
 */
export async function canonical(tx: Connection, { id, items }: { id: string; items: WorkItem[] }) {
  const ids = items.map(({ object }) => object.id);
  const runQuery = async (text: string, values: unknown[]) => (await tx.query(text, values)).rows;
  const people = (await runQuery(users, [id])).map((row) => JSON.stringify(row)).sort();
  const deadLetterRows = await runQuery(keptLetters, [id]);
  const outcomes = await runQuery('select object_id, error from outcomes where object_id = any($1::uuid[])', [
    ids,
  ]);
  return {
    people: people.map((text) => JSON.parse(text)),
    others: await runQuery(others, [id]),
    untold: await runQuery(untold, [id]),
    history: await runQuery(history, [id]),
    deadLetters: deadLetterRows.map((row) => ids.indexOf(row.id)).sort(),
    outcomes: outcomes.map(({ object_id, error }) => `${ids.indexOf(object_id)}: ${error}`).sort(),
  };
}
