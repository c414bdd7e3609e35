import type { Pool } from './database.ts';
import { migrationNames } from './migration-names.ts';

/** A scan of a table that has a row for each migration. */
const text = `
  select array(
    select _prisma_migrations.migration_name
    from _prisma_migrations
    where _prisma_migrations.finished_at is not null
      and _prisma_migrations.rolled_back_at is null
  ) as applied`;

let wanted: string[] | undefined;

/**
 * Whether the database has every table and column of this version; it may have those of a later one as well.
 *
 * @param patience milliseconds for the answer; a connection that takes longer is not used again
 * @throws when Postgres does not answer
 */
export async function isMigrated(pool: Pool, patience: number): Promise<boolean> {
  wanted ??= migrationNames();
  try {
    const { rows } = await pool.query<{ applied: string[] }>({ text, query_timeout: patience } as never);
    return wanted.every((name) => rows[0]!.applied.includes(name));
  } catch (error) {
    // There is no such table.
    if ((error as { code?: string }).code === '42P01') return false;
    throw error;
  }
}
