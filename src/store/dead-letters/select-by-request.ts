import type { Pool } from '../database.ts';
import { type DeadLetter, deadLetterColumns } from './dead-letter.ts';

/** By the index on workspace and request. */
const statement = `
select ${deadLetterColumns}
  from dead_letters
 where dead_letters.workspace_id = $1::uuid and dead_letters.request_id = $2::text
 order by dead_letters.id`;

/** The objects of a request that could not be applied at first, in the order in which they were accepted. */
export async function selectByRequest(
  pool: Pool,
  workspaceId: string,
  requestId: string,
): Promise<DeadLetter[]> {
  const { rows } = await pool.query<DeadLetter>({
    name: 'select-dead-letters-by-request',
    text: statement,
    values: [workspaceId, requestId],
  });
  return rows;
}
