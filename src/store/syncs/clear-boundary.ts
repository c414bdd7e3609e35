import type { Connection } from '../database.ts';

/** By the first column of the primary key. */
const statement = `
  delete from sync_boundary
  where sync_boundary.integration_id = $1::uuid
    and sync_boundary.unreadable = $2::boolean`;

/**
 * Forgets which rows were processed.
 * @param unreadable those without a readable time; otherwise those of the integration's last timestamp
 */
export async function clearBoundary(
  tx: Connection,
  integrationId: string,
  unreadable: boolean,
): Promise<void> {
  await tx.query({ name: 'clear-boundary', text: statement, values: [integrationId, unreadable] });
}
