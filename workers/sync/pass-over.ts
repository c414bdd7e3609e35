import type { SourceRow } from '../../src/integrations/source.ts';
import type { Pool } from '../../src/store/database.ts';
import { expectBoundary } from '../../src/store/syncs/expect-boundary.ts';
import type { Run } from '../../src/store/syncs/find-run.ts';
import { meetBoundary } from '../../src/store/syncs/meet-boundary.ts';
import { fingerprintOf, tally } from './fingerprint.ts';

/** Takes away the rows that have been processed before; of equal rows, as many as there were. */
export type PassOver = (rows: SourceRow[]) => Promise<SourceRow[]>;

/**
 * Reading begins at the last timestamp, rows of that very time included, since more of them may have come since; and
 * those without a readable time are read whatever has become of them. Which of them were processed is in the store,
 * and so is what this attempt has met of it: there may be a million.
 *
 * @param attempt UUID: of one reading of the source
 */
export async function createPassOver(pool: Pool, run: Run, attempt: string): Promise<PassOver> {
  let left = await expectBoundary(pool, { attempt, jobId: run.id, integrationId: run.integrationId });

  return async function passOver(rows) {
    if (left === 0) return rows;
    const known = rows.map((row) =>
      row.updatedAt === undefined || row.updatedAt === run.lastTimestamp ? fingerprintOf(row) : undefined,
    );
    const asked = tally(known.filter((fingerprint) => fingerprint !== undefined));
    if (asked.size === 0) return rows;
    const met = await meetBoundary(pool, attempt, asked);
    return rows.filter((_, index) => {
      const fingerprint = known[index];
      const before = fingerprint === undefined ? 0 : (met.get(fingerprint) ?? 0);
      if (before === 0) return true;
      met.set(fingerprint!, before - 1);
      left--;
      return false;
    });
  };
}
