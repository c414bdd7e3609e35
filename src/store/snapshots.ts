import type { ClockState } from '../platform/clock.ts';
import { controlFunctions } from './control-functions.ts';
import type { Database, Pool } from './database.ts';
import { PostgresClient } from './postgres-client.ts';

/** Name of the snapshot that holds the first workspace and its credentials, and no user. */
export const EMPTY_SNAPSHOT = 'empty';

/** Adds the functions of the control endpoints to a database that is used for tests only, and takes the first snapshot. */
export async function prepareControl(url: string): Promise<void> {
  const client = new PostgresClient({ connectionString: url });
  await client.connect();
  try {
    await client.query(controlFunctions);
    await client.query('select penstock_dev.take($1)', [EMPTY_SNAPSHOT]);
  } finally {
    await client.end();
  }
}

/** Copies all rows into the snapshot of this name, and replaces an earlier one. */
export async function takeSnapshot(pool: Pool, name: string): Promise<void> {
  await pool.query('select penstock_dev.take($1)', [name]);
}

export async function dropSnapshot(pool: Pool, name: string): Promise<void> {
  await pool.query(`drop schema "penstock_dev_${name}" cascade`);
}

/**
 * Replaces all rows by those of a snapshot.
 *
 * @returns false if there is no snapshot with this name
 */
export async function restoreSnapshot(pool: Pool, name: string): Promise<boolean> {
  const { rows } = await pool.query<{ restored: boolean }>('select penstock_dev.restore($1) as restored', [
    name,
  ]);
  return rows[0]!.restored;
}

const setClockStatement = `
  update penstock_clock.state set ahead_ms = $1::float8, frozen_at = to_timestamp($2::float8 / 1000)`;

/** Sets the clock that all sessions of Postgres read. */
export async function setStoreClock(pool: Pool, { aheadMs, frozenAt }: ClockState): Promise<void> {
  await pool.query(setClockStatement, [aheadMs, frozenAt]);
}

/** Counts work of sync processes that has been accepted and has not ended. */
export async function countUnfinishedWork({
  prisma,
}: Pick<Database, 'prisma'>): Promise<{ syncRuns: number; segmentExports: number }> {
  const [syncRuns, segmentExports] = await Promise.all([
    prisma.syncJob.count({ where: { finishedAt: null } }),
    prisma.segmentExport.count({ where: { state: 'open' } }),
  ]);
  return { syncRuns, segmentExports };
}

/** An object that was accepted and could not be applied. */
interface WaitingDeadLetter {
  id: string;
  requestId: string;
  kind: string;
  object: unknown;
  reason: string;
}

/** Lists the first dead letters of all workspaces. */
export function listWaitingDeadLetters(
  { prisma }: Pick<Database, 'prisma'>,
  limit: number,
): Promise<WaitingDeadLetter[]> {
  return prisma.keptDeadLetter.findMany({
    where: { state: 'waiting' },
    orderBy: { id: 'asc' },
    select: { id: true, requestId: true, kind: true, object: true, reason: true },
    take: limit,
  });
}
