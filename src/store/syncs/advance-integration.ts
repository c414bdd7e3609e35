import type { Connection } from '../database.ts';

/** One row by primary key. */
const statement = `
  update integrations
  set last_timestamp = $2::timestamptz
  where integrations.id = $1::uuid`;

/** @param lastTimestamp where the next sync begins to read */
export async function advanceIntegration(
  tx: Connection,
  integrationId: string,
  lastTimestamp: string,
): Promise<void> {
  await tx.query({ name: 'advance-integration', text: statement, values: [integrationId, lastTimestamp] });
}
