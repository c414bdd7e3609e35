import type { Connection, Pool } from './database.ts';

/** Who holds the place, as a number of 64 bits; the transaction has it until its end. */
const claimStatement = `select pg_try_advisory_xact_lock(hashtextextended('export ' || $1::text, 0)) as claimed`;

/** Every statement of the transaction sees the rows of this moment. */
const momentStatement = 'select now() as moment';

/** The rows as they were at one moment, for reading. */
export interface Snapshot {
  connection: Connection;
  asOf: Date;
}

/**
 * Does something that reads what the store was at one moment, in one transaction that changes nothing. For as long as it
 * takes, Postgres keeps the rows that others replace.
 *
 * @param place of what is written: one process at a time has it
 * @returns undefined when another has the place
 */
export async function inSnapshot<T>(
  pool: Pool,
  place: string,
  read: (snapshot: Snapshot) => Promise<T>,
): Promise<T | undefined> {
  const connection = await pool.connect();
  let broken: Error | undefined;
  try {
    await connection.query('begin isolation level repeatable read read only');
    const { rows: claims } = await connection.query<{ claimed: boolean }>(claimStatement, [place]);
    if (!claims[0]!.claimed) return undefined;
    const { rows } = await connection.query<{ moment: Date }>(momentStatement);
    return await read({ connection, asOf: rows[0]!.moment });
  } finally {
    await connection.query('rollback').catch((error: Error) => {
      broken = error;
    });
    connection.release(broken);
  }
}
