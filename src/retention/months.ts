import { floorOf } from '../platform/ids.ts';

/** A month, UTC: `2026-01`. */
export type Month = string;

/** Ids of a month are behind `after` and before `before`. */
export function idsOf(month: Month): { after: string; before: string } {
  return { after: floorOf(startOf(month)), before: floorOf(startOf(following(month))) };
}

function startOf(month: Month): number {
  return Date.parse(`${month}-01T00:00:00Z`);
}

function following(month: Month): Month {
  const date = new Date(startOf(month));
  date.setUTCMonth(date.getUTCMonth() + 1);
  return monthOfDate(date.getTime());
}

/** What two clocks say: Postgres's, and this process's, which can only keep months for longer. */
export interface Clocks {
  database: Date;
  process: Date;
}

/** The first month that no run touches, whatever a setting says: the one before this month, by the clock that is behind. */
export function firstUntouched({ database, process }: Clocks): Month {
  const now = new Date(Math.min(database.getTime(), process.getTime()));
  return monthOfDate(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - 1));
}

/**
 * The first month that stays, by Postgres's clock: those before it are wholly older than so many months.
 * @param months at least 1
 */
export function firstKept(clocks: Clocks, months: number): Month {
  const cut = new Date(clocks.database);
  // The 31st has no counterpart in a shorter month: its last day is meant, which is of the same month.
  cut.setUTCDate(1);
  cut.setUTCMonth(cut.getUTCMonth() - months);
  const [kept, untouched] = [monthOfDate(cut.getTime()), firstUntouched(clocks)];
  return kept < untouched ? kept : untouched;
}

function monthOfDate(milliseconds: number): Month {
  return new Date(milliseconds).toISOString().slice(0, 7);
}
