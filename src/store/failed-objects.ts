import type { Identifier } from '../profile/identifier.ts';
import { type Connection, storable } from './database.ts';
import { identifierText } from './dead-letters.ts';

/** An object that no retry can apply, as the worker writes it down. */
export interface FailedObject {
  /** A UUID, the object's own where it has one: an object has one dead letter, however often it fails. */
  id: string;
  workspaceId: string;
  /** The `X-Request-Id` of the request that carried the object. */
  requestId: string;
  /** The object's kind, or what stands in its place. */
  kind: string;
  /** The permanent name of the job that carried the object. */
  jobName: string;
  /** Whom the object names. */
  identifiers: Identifier[];
  /** Any JSON value: an object may be here because it breaks its contract. */
  object: unknown;
  /** One sentence for a person. */
  reason: string;
}

// An object arrives as a string inside the parameter. The cast to json then reads the escapes that jsonb and text
// refuse (U+0000, lone surrogates) as they are. `reason` is text, and is made storable first.
// Beside the names that an object has for its user stands the user: names can be lost before the user is deleted. An
// address means a user whom nobody shares it with. Owners are found by the unique indexes of external
// ids, deprecated ones too, and aliases, and by profiles_email and profiles_phone.
// Locks in id order; the primary key finds a dead letter whose replay has failed again.
// Described first, in a query of its own: a distributed Postgres then gives out their places at the coordinator, as all
// others. Else the node does that has the users, whose numbers are none that a delete compares with.
const insertDeadLettersStatement = `
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
   set state = 'waiting', reason = excluded.reason, failed_at = excluded.failed_at`;

/**
 * Writes dead letters, in the transaction that applies their envelope. One that failed before, and has failed
 * again in a replay, waits again with the new reason; its object and its number of replays stay.
 */
export async function insertDeadLetters(
  connection: Connection,
  rows: readonly FailedObject[],
): Promise<void> {
  if (rows.length === 0) return;
  // A row may stand once in an `on conflict` statement.
  const byId = new Map(rows.map((row) => [row.id.toLowerCase(), row]));
  const failed = [...byId].map(([id, row]) => ({
    id,
    workspace_id: row.workspaceId,
    request_id: storable(row.requestId),
    kind: storable(row.kind),
    job_name: row.jobName,
    object: written(row.object),
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
 * An identifier as the statement looks for it, and as the text that is kept of it. It may be anything that has such a
 * text: an object may be here because its identifier breaks the contract.
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

/** Levels up to which everybody can read JSON: Postgres, and whoever walks through it. No edge lets as many through. */
const MAX_LEVELS = 1000;

/** The JSON text of an object; of one that nests deeper than anybody can read, the text of that text. */
function written(object: unknown): string {
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
  let isText = false;
  // Character by character: an expression that finds what opens and closes levels takes seven times as long.
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    if (code === QUOTE) isText = !isText;
    else if (isText) {
      if (code === BACKSLASH) index++;
    } else if (code === BRACKET || code === BRACE) {
      if (++depth > levels) return true;
    } else if (code === BRACKET_END || code === BRACE_END) depth--;
  }
  return false;
}

const [QUOTE, BACKSLASH] = [0x22, 0x5c];

const [BRACKET, BRACKET_END, BRACE, BRACE_END] = [0x5b, 0x5d, 0x7b, 0x7d];
