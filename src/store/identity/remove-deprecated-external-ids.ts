import { uuidArray } from '../arrays.ts';
import type { Connection } from '../database.ts';

/** By primary key. */
const statement = `
  delete from deprecated_external_ids
  using unnest($1::uuid[], $2::text[]) as given (workspace_id, external_id)
  where deprecated_external_ids.workspace_id = given.workspace_id
    and deprecated_external_ids.external_id = given.external_id`;

/** From now on the ids resolve to nobody. */
export async function removeDeprecatedExternalIds(
  tx: Connection,
  ids: { workspace_id: string; external_id: string }[],
): Promise<void> {
  await tx.query({
    name: 'remove-deprecated-external-ids',
    text: statement,
    values: [uuidArray(ids, (row) => row.workspace_id), ids.map((row) => row.external_id)],
  });
}
