import { type Identifier, identifierText } from '../profile/identifier.ts';
import { type Connection, storable } from './database.ts';
import { withCitusForm } from './one-workspace.ts';

/** An object that cannot be applied by a retry, as the worker records it. */
export interface FailedObject {
  /** UUID; the object's own if it has one. An object has one dead letter, however often it fails. */
  id: string;
  workspaceId: string;
  /** The `X-Request-Id` of the request that contained the object. */
  requestId: string;
  /** Kind of the object, or a placeholder. */
  kind: string;
  /** Permanent name of the job that contained the object. */
  jobName: string;
  /** Identifiers that the object names. */
  identifiers: Identifier[];
  /** Any JSON value, because the object may have failed for violating its contract. */
  object: unknown;
  /** One sentence for an operator. */
  reason: string;
}

/**
 * Inserts dead letters; the primary key finds a dead letter whose replay has failed again. Locks in id order.
 *
 * Objects are passed as strings inside the parameter: the cast to json accepts escapes that jsonb and text
 * reject (U+0000, lone surrogates). `reason` is text and is made storable before.
 *
 * In addition to the names in the object, the id of the user is stored, because a user may lose names before
 * being deleted. An address identifies a user only if no other user has it. Owners are found by the unique
 * indexes of external ids, deprecated external ids and aliases, and by profiles_email and profiles_phone.
 *
 * `described` is a separate query, so that a distributed Postgres assigns places at the coordinator, like all
 * others. Otherwise the node of the users would assign numbers that a delete cannot compare with.
 */
const insertDeadLettersStatement = withCitusForm(`
with described as materialized (
select failed.id, failed.workspace_id, failed.request_id, failed.kind, failed.job_name,
       failed.object::json as object, failed.reason, array(
         select named.text
           from json_to_recordset(failed.identifiers) as named (text text)
          union
         select 'u:' || owner.id
           from json_to_recordset(failed.identifiers) as named (kind text, value text, label text)
          cross join lateral (
            (select profiles.id from profiles
              where named.kind = 'external_id'
                and profiles.workspace_id = failed.workspace_id and profiles.external_id = named.value
              limit 1)
            union all
            (select living.id from deprecated_external_ids as deprecated
              cross join lateral (
                select profiles.id from profiles
                 where profiles.workspace_id = deprecated.workspace_id and profiles.id = deprecated.profile_id
                 limit 1) as living
              where named.kind = 'external_id'
                and deprecated.workspace_id = failed.workspace_id and deprecated.external_id = named.value
              limit 1)
            union all
            (select living.id from user_aliases as aliases
              cross join lateral (
                select profiles.id from profiles
                 where profiles.workspace_id = aliases.workspace_id and profiles.id = aliases.profile_id
                 limit 1) as living
              where named.kind = 'user_alias'
                and aliases.workspace_id = failed.workspace_id
                and aliases.alias_label = named.label and aliases.alias_name = named.value
              limit 1)
            union all
            (select min(holders.id::text)::uuid
               from (select profiles.id from profiles
                      where named.kind = 'email'
                        and profiles.workspace_id = failed.workspace_id and profiles.email = named.value
                      limit 2) as holders
             having count(*) = 1)
            union all
            (select min(holders.id::text)::uuid
               from (select profiles.id from profiles
                      where named.kind = 'phone'
                        and profiles.workspace_id = failed.workspace_id and profiles.phone = named.value
                        and profiles.phone_valid
                      limit 2) as holders
             having count(*) = 1)
          ) as owner) as identifiers
  from json_to_recordset($1::json) as failed (
         id uuid, workspace_id uuid, request_id text, kind text, job_name text, object text, reason text,
         identifiers json
       )
 order by failed.id
)
insert into dead_letters (id, workspace_id, request_id, kind, job_name, object, reason, identifiers)
select described.id, described.workspace_id, described.request_id, described.kind, described.job_name, described.object,
       described.reason, described.identifiers
  from described
    on conflict (id) do update
   set state = 'waiting', reason = excluded.reason, failed_at = excluded.failed_at`);

/**
 * Inserts dead letters in the transaction that applies their envelope. A dead letter whose replay has failed
 * again becomes waiting with the new reason. Its object and number of replays stay unchanged.
 */
export async function insertDeadLetters(
  connection: Connection,
  rows: readonly FailedObject[],
): Promise<void> {
  if (rows.length === 0) return;
  // `on conflict` cannot update the same row twice in one statement.
  const byId = new Map(rows.map((row) => [row.id.toLowerCase(), row]));
  const failed = [...byId].map(([id, row]) => ({
    id,
    workspace_id: row.workspaceId,
    request_id: storable(row.requestId),
    kind: storable(row.kind),
    job_name: row.jobName,
    object: jsonTextOf(row.object),
    reason: storable(row.reason),
    identifiers: row.identifiers.map(describe),
  }));
  await connection.query({
    name: 'insert-dead-letters',
    text: insertDeadLettersStatement,
    values: [JSON.stringify(failed)],
  });
}

/**
 * Returns the parts of an identifier that the statement looks up, and its stored text. The identifier may be
 * invalid, because the object may have failed for that reason.
 */
function describe(identifier: Identifier) {
  const text = storable(identifierText(identifier));
  if ('user_alias' in identifier) {
    const { alias_label, alias_name } = identifier.user_alias;
    return { kind: 'user_alias', label: storable(alias_label), value: storable(alias_name), text };
  }
  const [kind, value] = Object.entries(identifier)[0] ?? [];
  return { kind, value: storable(value), text };
}

/**
 * Nesting depth up to which Postgres and other readers can parse JSON. Web rejects objects before they reach
 * it.
 */
const MAX_LEVELS = 1000;

/**
 * Returns the JSON text of an object. If it is nested too deeply, returns its text encoded as a JSON string.
 */
function jsonTextOf(object: unknown): string {
  try {
    const text = JSON.stringify(object);
    return nestsDeeperThan(MAX_LEVELS, text) ? JSON.stringify(text) : text;
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return JSON.stringify('an object that nests too deeply to be written down');
  }
}

function nestsDeeperThan(levels: number, text: string): boolean {
  if (text.length <= 2 * levels) return false;
  let depth = 0;
  let isString = false;
  // A loop, because a regular expression takes seven times as long.
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    if (code === QUOTE) isString = !isString;
    else if (isString) {
      if (code === BACKSLASH) index++;
    } else if (code === BRACKET || code === BRACE) {
      if (++depth > levels) return true;
    } else if (code === BRACKET_END || code === BRACE_END) depth--;
  }
  return false;
}

const [QUOTE, BACKSLASH] = [0x22, 0x5c];

const [BRACKET, BRACKET_END, BRACE, BRACE_END] = [0x5b, 0x5d, 0x7b, 0x7d];
