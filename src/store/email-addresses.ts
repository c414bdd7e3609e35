import { textArray, uuidArray } from './arrays.ts';
import type { Connection } from './database.ts';
import { MAX_HOLDERS } from './identifiers.ts';
import { ROWS_AT_ONCE } from './merges.ts';
import { withCitusForm } from './one-workspace.ts';
import { requestErasures } from './stream-erasures.ts';
import { marks } from './subscription-states.ts';

export interface EmailState {
  workspaceId: string;
  email: string;
  state: string;
}

/**
 * Upserts in primary key order; an address may occur only once. `changed_at` is kept if the state is the
 * same.
 */
const setEmailStatesStatement = withCitusForm(`
  insert into email_addresses (workspace_id, email, state, changed_at)
  select given.workspace_id, given.email, given.state, $4::timestamptz
  from unnest($1::uuid[], $2::text[], $3::text[]) as given (workspace_id, email, state)
  order by given.workspace_id, given.email
  on conflict (workspace_id, email) do update set
    state = excluded.state,
    changed_at = case
      when email_addresses.state = excluded.state then email_addresses.changed_at else excluded.changed_at end`);

/** Returns the parameters $1 to $3. */
function stateValues(states: EmailState[]): Buffer[] {
  return [
    uuidArray(states, (row) => row.workspaceId),
    textArray(states, (row) => row.email),
    textArray(states, (row) => row.state),
  ];
}

/** Sets the global state of addresses, which applies to every profile that has one of them. */
export async function setEmailStates(tx: Connection, states: EmailState[], now: string): Promise<void> {
  await tx.query({
    name: 'set-email-states',
    text: setEmailStatesStatement,
    values: [...stateValues(states), now],
  });
}

/**
 * Inserts in primary key order. An address that already has a state keeps it; a row that only records a hard
 * bounce has no state and takes the new one.
 */
const takeEmailStatesStatement = withCitusForm(`
  insert into email_addresses (workspace_id, email, state, changed_at)
  select given.workspace_id, given.email, given.state, $4::timestamptz
  from unnest($1::uuid[], $2::text[], $3::text[]) as given (workspace_id, email, state)
  order by given.workspace_id, given.email
  on conflict (workspace_id, email) do update set
    state = excluded.state,
    changed_at = excluded.changed_at
  where email_addresses.state is null`);

/**
 * Gives addresses the global state that a profile had before it had an address. An address may occur only
 * once.
 */
export async function takeEmailStates(tx: Connection, states: EmailState[], now: string): Promise<void> {
  await tx.query({
    name: 'take-email-states',
    text: takeEmailStatesStatement,
    values: [...stateValues(states), now],
  });
}

export interface HardBounce {
  workspaceId: string;
  email: string;
  hardBounced: boolean;
}

/**
 * Writes in primary key order; an address may occur only once. A repeated bounce keeps the time of the first
 * one.
 */
const setHardBouncesStatement = withCitusForm(`
  with given as (
    select *
    from unnest($1::uuid[], $2::text[], $3::boolean[]) as given (workspace_id, email, hard_bounced)
  ), cleared as (
    update email_addresses set hard_bounced_at = null
    from given
    where not given.hard_bounced
      and email_addresses.workspace_id = given.workspace_id
      and email_addresses.email = given.email
      and email_addresses.hard_bounced_at is not null
  )
  insert into email_addresses (workspace_id, email, state, hard_bounced_at, changed_at)
  select given.workspace_id, given.email, null, $4::timestamptz, $4::timestamptz
  from given
  where given.hard_bounced
  order by given.workspace_id, given.email
  on conflict (workspace_id, email) do update set hard_bounced_at = excluded.hard_bounced_at
  where email_addresses.hard_bounced_at is null`);

/** Records hard bounces of addresses, or clears them. An address does not have to belong to a profile. */
export async function setHardBounces(tx: Connection, bounces: HardBounce[], now: string): Promise<void> {
  await tx.query({
    name: 'set-hard-bounces',
    text: setHardBouncesStatement,
    values: [
      uuidArray(bounces, (row) => row.workspaceId),
      textArray(bounces, (row) => row.email),
      bounces.map((row) => row.hardBounced),
      now,
    ],
  });
}

/** An email address for which a request clears the spam mark. */
export interface ClearedSpam {
  workspaceId: string;
  email: string;
  requestId: string;
}

/**
 * Selects addresses that more than MAX_HOLDERS profiles have. Uses the index profiles_email and stops one
 * entry after the limit.
 */
const crowded = withCitusForm(`
  select given.workspace_id as "workspaceId", given.email
  from unnest($1::uuid[], $2::text[]) as given (workspace_id, email)
  where (
    select 1
    from profiles
    where profiles.workspace_id = given.workspace_id and profiles.email = given.email
    offset ${MAX_HOLDERS}
    limit 1) is not null`);

/** Returns the addresses that belong to more profiles than one object may change. */
export async function findCrowdedEmails(
  tx: Connection,
  workspaceIds: string[],
  emails: string[],
): Promise<{ workspaceId: string; email: string }[]> {
  const values = [workspaceIds, emails];
  const { rows } = await tx.query({ name: 'find-crowded-emails', text: crowded, values });
  return rows;
}

/**
 * Selects the marked profiles that have one of the addresses, by the index profiles_email. An address may
 * occur more than once: its first request clears the mark and is recorded in the history. The caller skips
 * crowded addresses, but an address may have become crowded since then, hence the higher limit.
 */
const marked = `
  with marked as materialized (
    select distinct on (holders.workspace_id, holders.id) holders.workspace_id, holders.id, given.request_id
    from unnest($1::uuid[], $2::text[], $3::text[]) with ordinality as given (workspace_id, email, request_id, place)
    cross join lateral (
      select profiles.workspace_id, profiles.id, profiles.marked_email_as_spam_at
      from profiles
      where profiles.workspace_id = given.workspace_id
        and profiles.email = given.email
      limit ${2 * MAX_HOLDERS}
    ) as holders
    where holders.marked_email_as_spam_at is not null
    order by holders.workspace_id, holders.id, given.place
  )`;

/** Locks in id order, so that the history rows written next match the rows that the update changes. */
const lockMarkedStatement = withCitusForm(`${marked}
  select profiles.id
  from profiles
  where (profiles.workspace_id, profiles.id) in (select marked.workspace_id, marked.id from marked)
    and profiles.marked_email_as_spam_at is not null
  order by profiles.id
  for update`);

const recordMarkedStatement = withCitusForm(`${marked}
  insert into subscription_history (
    workspace_id, subject_kind, subject, subscription, from_state, to_state, changed_at, request_id)
  select
    marked.workspace_id, 'profile', marked.id::text, 'spam', '${marks.spam}', null, $4::timestamptz, marked.request_id
  from marked`);

const clearMarkedStatement = withCitusForm(`${marked}
  update profiles set marked_email_as_spam_at = null
  from marked
  where profiles.workspace_id = marked.workspace_id and profiles.id = marked.id`);

/**
 * Clears the spam mark of every profile that has one of the addresses. This does not count as an update of
 * the profile. The statements are pipelined because none needs the result of another. Later history rows get
 * higher ids, and a rollback to a savepoint undoes all three.
 */
export async function clearSpamMarks(tx: Connection, cleared: ClearedSpam[], now: string): Promise<void> {
  const values = [
    cleared.map(({ workspaceId }) => workspaceId),
    cleared.map(({ email }) => email),
    cleared.map(({ requestId }) => requestId),
  ];
  await Promise.all([
    tx.query({ name: 'lock-spam-marks', text: lockMarkedStatement, values }),
    tx.query({ name: 'tell-cleared-marks', text: recordMarkedStatement, values: [...values, now] }),
    tx.query({ name: 'clear-spam-marks', text: clearMarkedStatement, values }),
  ]);
}

/**
 * Deletes the states of addresses that no profile has any longer, with their history, by primary key and the
 * indexes profiles_email and profiles_phone. Runs after the profiles were deleted. The limits keep the
 * planner from joining whole tables. If a history is longer than one slice, it is marked as dropped, and a
 * background job erases the rest.
 */
const dropUnheldAddressesStatement = withCitusForm(`
  with unheld as materialized (
    select given.workspace_id, given.kind, given.address
    from unnest($1::uuid[], $2::text[], $3::text[]) as given (workspace_id, kind, address)
    where (
      select 1 from profiles
      where given.kind = 'email'
        and profiles.workspace_id = given.workspace_id
        and profiles.email = given.address
      limit 1) is null
      and (
        select 1 from profiles
        where given.kind = 'phone'
          and profiles.workspace_id = given.workspace_id
          and profiles.phone = given.address
          and profiles.phone_valid
        limit 1) is null
  ), states_gone as (
    delete from subscription_states using unheld
    where subscription_states.workspace_id = unheld.workspace_id
      and subscription_states.subject_kind = unheld.kind
      and subscription_states.subject = unheld.address
  ), history_slice as materialized (
    select hit.*
    from unheld
    cross join lateral (
      select
        subscription_history.workspace_id, subscription_history.subject_kind, subscription_history.subject,
        subscription_history.subscription, subscription_history.id
      from subscription_history
      where subscription_history.workspace_id = unheld.workspace_id
        and subscription_history.subject_kind = unheld.kind
        and subscription_history.subject = unheld.address
      limit ${ROWS_AT_ONCE}
    ) as hit
  ), history_gone as (
    delete from subscription_history using history_slice as slice
    where subscription_history.workspace_id = slice.workspace_id
      and subscription_history.subject_kind = slice.subject_kind
      and subscription_history.subject = slice.subject
      and subscription_history.subscription = slice.subscription
      and subscription_history.id = slice.id
  ), history_left as (
    insert into dropped_histories (workspace_id, subject_kind, subject, up_to)
    select unheld.workspace_id, unheld.kind, unheld.address, pg_sequence_last_value('subscription_history_id_seq')
    from unheld
    where (
      select 1 from subscription_history
      where subscription_history.workspace_id = unheld.workspace_id
        and subscription_history.subject_kind = unheld.kind
        and subscription_history.subject = unheld.address
      offset ${ROWS_AT_ONCE}
      limit 1) is not null
    order by unheld.workspace_id, unheld.kind, unheld.address
    on conflict (workspace_id, subject_kind, subject) do update set up_to = excluded.up_to
  ), invalid_gone as (
    delete from invalid_phone_numbers using unheld
    where unheld.kind = 'phone'
      and invalid_phone_numbers.workspace_id = unheld.workspace_id
      and invalid_phone_numbers.phone = unheld.address
  ), logged as materialized (
    select
      unheld.workspace_id, unheld.kind, unheld.address as subject,
      coalesce(pg_sequence_last_value('stream_log_id'), 0) as up_to, $4::timestamptz as dropped_at
    from unheld
    where (
      select 1 from stream_destinations where stream_destinations.workspace_id = unheld.workspace_id
      limit 1) is not null
      or (
        select 1 from stream_log where stream_log.workspace_id = unheld.workspace_id
        limit 1) is not null
  ), ${requestErasures('logged')}
  delete from email_addresses using unheld
  where unheld.kind = 'email'
    and email_addresses.workspace_id = unheld.workspace_id
    and email_addresses.email = unheld.address`);

export interface HeldAddress {
  workspaceId: string;
  kind: 'email' | 'phone';
  address: string;
}

/**
 * Deletes subscription states, history and other data of the addresses that no profile has any longer, and
 * requests the erasure of their entries in the stream log.
 */
export async function dropUnheldAddresses(
  tx: Connection,
  addresses: HeldAddress[],
  now: string,
): Promise<void> {
  await tx.query({
    name: 'drop-unheld-addresses',
    text: dropUnheldAddressesStatement,
    values: [
      addresses.map(({ workspaceId }) => workspaceId),
      addresses.map(({ kind }) => kind),
      addresses.map(({ address }) => address),
      now,
    ],
  });
}
