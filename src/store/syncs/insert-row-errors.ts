import type { Connection } from '../database.ts';
import type { RowError } from './stage-chunk.ts';

/** By primary key. */
const statement = `
  insert into sync_row_errors (job_id, number, updated_at, identifier, payload, reason, identifiers)
  select $1::uuid, failed.number, failed.updated_at, failed.identifier, failed.payload, failed.reason,
    array(select json_array_elements_text(failed.identifiers))
  from unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::json[])
    as failed (number, updated_at, identifier, payload, reason, identifiers)
  on conflict (job_id, number) do nothing`;

/** Writes down why rows had no effect. */
export async function insertRowErrors(tx: Connection, jobId: string, rows: RowError[]): Promise<void> {
  await tx.query({
    name: 'insert-row-errors',
    text: statement,
    values: [
      jobId,
      rows.map(({ number }) => number),
      rows.map(({ updated_at }) => storable(updated_at)),
      rows.map(({ identifier }) => storable(identifier)),
      rows.map(({ payload }) => storable(payload)),
      rows.map(({ reason }) => storable(reason)),
      rows.map(({ identifiers = [] }) => JSON.stringify(identifiers.map(storable))),
    ],
  });
}

/** A text column takes neither U+0000 nor lone surrogates, and a row may have both. */
function storable(text: string | null): string | null {
  return text === null ? null : text.toWellFormed().replaceAll('\u0000', '\u2400');
}
