import type { SourceRow } from '../../src/integrations/source.ts';
import type { Pool } from '../../src/store/database.ts';
import { expectBoundary, meetBoundary } from '../../src/store/sync-boundary.ts';
import type { Run } from '../../src/store/sync-runs.ts';
import { fingerprintOf, tally } from './row-object.ts';

/** Removes rows that were processed before. Of equal rows, as many are removed as were processed. */
type Deduplicate = (rows: SourceRow[]) => Promise<SourceRow[]>;

/**
 * Creates the deduplication for one reading of a source. Reading starts at the watermark and includes rows
 * with exactly that time, because further rows with it may have been added since. Rows without a valid time
 * are read each time. The store contains which of these rows were processed and which were met by this
 * attempt, because there may be a million of them.
 *
 * @param attempt UUID of the reading
 */
export async function createDeduplication(pool: Pool, run: Run, attempt: string): Promise<Deduplicate> {
  let left = await expectBoundary(pool, { attempt, jobId: run.id, integrationId: run.integrationId });

  return async function deduplicate(rows) {
    if (left === 0) return rows;
    const fingerprints = rows.map((row) =>
      row.updatedAt === undefined || row.updatedAt === run.watermark ? fingerprintOf(row) : undefined,
    );
    const wanted = tally(fingerprints.filter((fingerprint) => fingerprint !== undefined));
    if (wanted.size === 0) return rows;
    const processed = await meetBoundary(pool, attempt, wanted);
    return rows.filter((_, index) => {
      const fingerprint = fingerprints[index];
      const before = fingerprint === undefined ? 0 : (processed.get(fingerprint) ?? 0);
      if (before === 0) return true;
      processed.set(fingerprint!, before - 1);
      left--;
      return false;
    });
  };
}
