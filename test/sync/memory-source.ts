import type { Source, SourceError, SourceRow } from '../../src/integrations/source.ts';

export interface MemoryRows {
  /** Rows in ascending order of time. */
  rows: SourceRow[];
  columns?: string[];
  /** Error that is thrown after this number of rows. */
  failure?: { afterRows: number; error: SourceError };
}

/** Reads a table in memory, because the engine's treatment of rows is independent of their source. */
export function memorySource(table: MemoryRows): Source {
  const columns = table.columns ?? ['UPDATED_AT', 'EXTERNAL_ID', 'PAYLOAD'];
  return {
    describe: async () => columns.map((name) => ({ name, type: 'text' })),
    async *rowsSince(since, { batch, signal }) {
      const due = table.rows.filter(
        ({ updatedAt }) => since === undefined || updatedAt === undefined || updatedAt >= since,
      );
      for (let start = 0; start < due.length && !signal.aborted; start += batch) {
        const { failure } = table;
        if (failure && start >= failure.afterRows) throw failure.error;
        yield due.slice(start, start + batch);
      }
    },
    close: async () => {},
  };
}

/** Returns the microsecond of this number after a day in the past. */
export function at(number: number): string {
  const seconds = new Date(Date.UTC(2026, 0, 1) + Math.floor(number / 1e6) * 1000).toISOString().slice(0, 19);
  return `${seconds}.${String(number % 1e6).padStart(6, '0')}Z`;
}

/** Returns a row of an attributes sync that increments a counter of its user. */
export function countingRow(user: string, time: string, more: object = {}): SourceRow {
  return {
    updatedAt: time,
    identifiers: { external_id: user },
    payload: JSON.stringify({ points: { inc: 1 }, ...more }),
  };
}

/** Returns a row of an events sync. */
export function eventRow(user: string, time: string, name = 'seen'): SourceRow {
  return { updatedAt: time, identifiers: { external_id: user }, payload: JSON.stringify({ name }) };
}

/** Returns external ids: the prefix and a number from 0. */
export function users(prefix: string, count: number): string[] {
  return Array.from({ length: count }, (_, index) => `${prefix}${index}`);
}
