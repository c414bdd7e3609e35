import type { Connection } from '../database.ts';

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
  /** Whom the object names, as `identifierText` writes it. */
  identifiers: string[];
  /** Any JSON value: an object may be here because it breaks its contract. */
  object: unknown;
  /** One sentence for a person. */
  reason: string;
}

// An object arrives as a string inside the parameter: the cast to json then reads the escapes that jsonb and
// text refuse (U+0000, lone surrogates) as they are, while `reason` is text and is made storable first.
// Locks in id order; the primary key finds a dead letter whose replay has failed again.
const statement = `
insert into dead_letters (id, workspace_id, request_id, kind, job_name, object, reason, identifiers)
select failed.id, failed.workspace_id, failed.request_id, failed.kind, failed.job_name, failed.object::json,
       failed.reason, array(select json_array_elements_text(failed.identifiers))
  from json_to_recordset($1::json) as failed (
         id uuid, workspace_id uuid, request_id text, kind text, job_name text, object text, reason text,
         identifiers json
       )
 order by failed.id
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
    kind: storable(String(row.kind)),
    job_name: row.jobName,
    object: JSON.stringify(row.object),
    reason: storable(row.reason),
    identifiers: row.identifiers.map(storable),
  }));
  await connection.query({ name: 'insert-dead-letters', text: statement, values: [JSON.stringify(failed)] });
}

/** A text column takes neither U+0000 nor lone surrogates, and a reason may quote the value that was refused. */
function storable(text: string): string {
  return Buffer.from(text, 'utf8').toString('utf8').replaceAll('\u0000', '\u2400');
}
