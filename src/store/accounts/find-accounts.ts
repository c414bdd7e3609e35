import type { Pool } from '../database.ts';
import { inTransaction } from '../in-transaction.ts';
import { type Condition, conditionSql, readsEveryone } from './condition.ts';

export interface Found {
  /** How many there are in all. */
  total: number;
  /** Of the page, in the order of their making. */
  page: { id: string; position: number }[];
}

/** Longest that a search may take, in ms: less than a client waits. */
const MAX_TIME = 1000;

/** Longest that it waits for a lock that another has, in ms: that is no fault of the search. */
const MAX_WAIT = 500;

/** A search that reads every account, and was ended by its time. */
export class SearchTooLong extends Error {
  override name = 'SearchTooLong';
}

/**
 * Accounts of one company that fit a condition, a page of them. By the indexes of `accounts`, each of which
 * starts with the company; `co` reads all of the company's.
 *
 * @param skip how many to leave out at the start, and `after` the position behind which to begin
 * @throws {SearchTooLong}
 */
export async function findAccounts(
  pool: Pool,
  companyId: string,
  condition: Condition | undefined,
  { skip = 0, after, limit }: { skip?: number; after?: number; limit: number },
): Promise<Found> {
  const values: unknown[] = [companyId];
  const fits = `accounts.company_id = $1::uuid${condition ? ` and ${conditionSql(condition, values)}` : ''}`;
  const count = {
    text: `select count(*)::integer as total from accounts where ${fits}`,
    values: [...values],
  };
  const behind = after === undefined ? '' : ` and accounts.position > $${values.push(after)}::bigint`;
  const page = {
    text: `
      select accounts.id, accounts.position
      from accounts
      where ${fits}${behind}
      order by accounts.position
      limit $${values.push(limit)}::integer offset $${values.push(skip)}::integer`,
    values,
  };
  try {
    return await inTransaction(pool, async (tx) => {
      // One snapshot, so that the page and the count are of one moment.
      await tx.query(`set transaction isolation level repeatable read, read only`);
      await tx.query(`set local statement_timeout = ${MAX_TIME}`);
      await tx.query(`set local lock_timeout = ${MAX_WAIT}`);
      const counted = await tx.query<{ total: number }>(count);
      const found = limit === 0 ? { rows: [] } : await tx.query<{ id: string; position: number }>(page);
      return { total: counted.rows[0]!.total, page: found.rows };
    });
  } catch (error) {
    const tooLong = (error as { code?: string }).code === '57014';
    throw tooLong && condition && readsEveryone(condition) ? new SearchTooLong() : error;
  }
}
