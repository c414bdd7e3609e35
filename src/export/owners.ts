import type { ParquetColumn } from '../object-store/parquet.ts';
import { toServiceId } from '../profile/identifier.ts';
import { findKept, findOwners, MAX_STEPS, type Owner } from '../store/export-owners.ts';
import { everybody } from './profiles.ts';
import { ExportError } from './progress.ts';
import type { ExportedRow, Reading } from './source.ts';

/**
 * What names a user where a row is imported: never an address that others have as well. The service's own id is known to
 * the installation alone that made it.
 */
export function nameOf(owner: Owner, serviceIdField: string): ExportedRow {
  const { externalId, aliasName, aliasLabel, ownEmail, ownPhone } = owner;
  if (externalId !== null) return { external_id: externalId };
  if (aliasName !== null) return { user_alias: { alias_name: aliasName, alias_label: aliasLabel } };
  if (ownEmail !== null) return { email: ownEmail };
  if (ownPhone !== null) return { phone: ownPhone };
  return { [serviceIdField]: toServiceId(owner.id) };
}

/** Columns of a Parquet file for what `nameOf` gives. */
export const namingColumns = (serviceIdField: string): ParquetColumn[] =>
  ['external_id', 'alias_name', 'alias_label', serviceIdField, 'email', 'phone'].map((name) => ({
    name,
    type: 'text',
  }));

/**
 * Who has these profiles now: themselves, or who has taken them in.
 * @returns by the profile's id; without those who were deleted
 * @throws {ExportError}
 */
export async function ownersOf(
  { wanted, connection }: Reading,
  profileIds: readonly string[],
): Promise<Map<string, Owner>> {
  const workspaceId = wanted.workspace.id;
  const asked = [...new Set(profileIds)];
  if (asked.length === 0) return new Map();
  const kept = await findKept(connection, workspaceId, asked);
  if (!kept)
    throw new ExportError(
      `more than ${MAX_STEPS} merges lead from one of ${asked.length} users from ${toServiceId(asked[0]!)} on to who has taken it in`,
    );
  const ids = [...new Set(asked.map((id) => kept.get(id) ?? id))];
  const definition = wanted.segment?.definition ?? everybody;
  const found = new Map(
    (await findOwners(connection, workspaceId, { ids, definition })).map((owner) => [owner.id, owner]),
  );
  return new Map(
    asked.flatMap((id) => {
      const owner = found.get(kept.get(id) ?? id);
      return owner ? [[id, owner] as const] : [];
    }),
  );
}
