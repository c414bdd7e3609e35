import { integerArray, uuidArray } from '../arrays.ts';
import type { Connection } from '../database.ts';

export interface NewExternalId {
  workspace_id: string;
  id: string;
  external_id: string;
  /** Place in the batch. */
  ordinal: number;
}

/** By primary key; the rows are locked already. An id that another lane gave away meanwhile raises 23505. */
const statement = `
  update profiles set
    external_id = given.external_id,
    updated_at = $5::timestamptz + given.ordinal * interval '1 microsecond'
  from unnest($1::uuid[], $2::uuid[], $3::text[], $4::integer[]) as given (workspace_id, id, external_id, ordinal)
  where profiles.workspace_id = given.workspace_id
    and profiles.id = given.id`;

/** Gives profiles the external id by which they go from now on. */
export async function setExternalIds(tx: Connection, ids: NewExternalId[], now: Date): Promise<void> {
  await tx.query({
    name: 'set-external-ids',
    text: statement,
    values: [
      uuidArray(ids, (row) => row.workspace_id),
      uuidArray(ids, (row) => row.id),
      ids.map((row) => row.external_id),
      integerArray(ids, (row) => row.ordinal),
      now,
    ],
  });
}
