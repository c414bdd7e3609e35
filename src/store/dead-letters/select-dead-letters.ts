import type { Connection, Pool } from '../database.ts';
import { type DeadLetter, deadLetterColumns } from './dead-letter.ts';

const statement = `
select ${deadLetterColumns}
  from dead_letters
 where dead_letters.id = any($1::uuid[])
 order by dead_letters.id`;

/** The dead letters with these ids, in the order in which their objects were accepted. */
export async function selectDeadLetters(
  database: Pool | Connection,
  ids: readonly string[],
): Promise<DeadLetter[]> {
  if (ids.length === 0) return [];
  const { rows } = await database.query<DeadLetter>({
    name: 'select-dead-letters',
    text: statement,
    values: [ids],
  });
  return rows;
}
