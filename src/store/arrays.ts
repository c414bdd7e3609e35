import { integerColumn, jsonColumn, POSTGRES_EPOCH, textColumn, timeColumn, uuidColumn } from './columns.ts';

/** Columns that are made of rows one by one: see `src/store/columns.ts`. The large sets of a batch are made in one pass there. */

/** `uuid[]`. @throws {RangeError} for what is none in its usual form */
export function uuidArray<Row>(rows: Row[], value: (row: Row) => string): Buffer {
  const column = uuidColumn(rows.length);
  for (const row of rows) column.addUuid(value(row));
  return column.toParameter();
}

/** The same of UUIDs themselves. */
export function uuids(values: string[]): Buffer {
  const column = uuidColumn(values.length);
  for (const value of values) column.addUuid(value);
  return column.toParameter();
}

/** `integer[]`, of 32 bits. @throws {RangeError} for what is none */
export function integerArray<Row>(rows: Row[], value: (row: Row) => number): Buffer {
  const column = integerColumn(rows.length);
  for (const row of rows) column.addInteger(value(row));
  return column.toParameter();
}

/** `timestamptz[]` of ISO 8601 times, to the millisecond. @throws {RangeError} for what is none */
export function timeArray<Row>(rows: Row[], value: (row: Row) => string): Buffer {
  const column = timeColumn(rows.length);
  for (const row of rows) column.addTime(value(row));
  return column.toParameter();
}

/** Milliseconds with their digits, and what may stand behind them: microseconds, of which a Date knows nothing. */
const FINE = /^(.*\.\d{3})(\d{3})?Z$/;

/**
 * `timestamptz[]` of times that lie some microseconds behind `start`.
 * @param start ISO 8601 in UTC with milliseconds or microseconds, as the store tells its clock
 * @throws {RangeError} for what is none
 */
export function laterArray<Row>(start: string, rows: Row[], microseconds: (row: Row) => number): Buffer {
  const [, coarse, rest = 0] = FINE.exec(start) ?? [];
  const milliseconds = Date.parse(`${coarse}Z`) - POSTGRES_EPOCH;
  if (Number.isNaN(milliseconds)) throw new RangeError(`${start} is no time`);
  const first = milliseconds * 1000 + Number(rest);
  const column = timeColumn(rows.length);
  for (const row of rows) column.addMicroseconds(first + microseconds(row));
  return column.toParameter();
}

/** `text[]`; undefined and null become NULL. */
export function textArray<Row>(rows: Row[], value: (row: Row) => string | null | undefined): Buffer {
  const column = textColumn(rows.length);
  for (const row of rows) column.addText(value(row));
  return column.toParameter();
}

/** The same of texts themselves. */
export function texts(values: string[]): Buffer {
  const column = textColumn(values.length);
  for (const value of values) column.addText(value);
  return column.toParameter();
}

/** `jsonb[]`; undefined becomes NULL. */
export function jsonArray<Row>(rows: Row[], value: (row: Row) => object | undefined): Buffer {
  const column = jsonColumn(rows.length);
  for (const row of rows) column.addJson(value(row));
  return column.toParameter();
}

/** The literal of a `numeric[]`, whose binary format is made of decimal digits as well. */
export function numerics(values: number[]): string {
  return `{${values.join(',')}}`;
}
