import { integerColumn, jsonColumn, POSTGRES_EPOCH, textColumn, timeColumn, uuidColumn } from './columns.ts';

/**
 * Parameters of array columns, built row by row with `src/store/columns.ts`. Large sets of a batch are built
 * there in one pass.
 */

/** Encodes a `uuid[]`. @throws {RangeError} for a value that is not a UUID in its usual form */
export function uuidArray<Row>(rows: Row[], value: (row: Row) => string): Buffer {
  const column = uuidColumn(rows.length);
  for (const row of rows) column.addUuid(value(row));
  return column.toParameter();
}

/** Encodes a `uuid[]` from a list of UUIDs. */
export function uuids(values: string[]): Buffer {
  const column = uuidColumn(values.length);
  for (const value of values) column.addUuid(value);
  return column.toParameter();
}

/** Encodes an `integer[]` (32 bits). @throws {RangeError} for any other value */
export function integerArray<Row>(rows: Row[], value: (row: Row) => number): Buffer {
  const column = integerColumn(rows.length);
  for (const row of rows) column.addInteger(value(row));
  return column.toParameter();
}

/**
 * Encodes a `timestamptz[]` from ISO 8601 times, with milliseconds.
 *
 * @throws {RangeError} for an invalid time
 */
export function timeArray<Row>(rows: Row[], value: (row: Row) => string): Buffer {
  const column = timeColumn(rows.length);
  for (const row of rows) column.addTime(value(row));
  return column.toParameter();
}

/** Separates a time with milliseconds from additional microseconds, which a Date cannot represent. */
const TIME_PARTS = /^(.*\.\d{3})(\d{3})?Z$/;

/**
 * Encodes a `timestamptz[]` of times that are some microseconds after `start`.
 *
 * @param start ISO 8601 in UTC with milliseconds or microseconds, from the store's clock
 * @throws {RangeError} for an invalid time
 */
export function laterArray<Row>(start: string, rows: Row[], microseconds: (row: Row) => number): Buffer {
  const [, timePrefix, rest = 0] = TIME_PARTS.exec(start) ?? [];
  const milliseconds = Date.parse(`${timePrefix}Z`) - POSTGRES_EPOCH;
  if (Number.isNaN(milliseconds)) throw new RangeError(`${start} is no time`);
  const first = milliseconds * 1000 + Number(rest);
  const column = timeColumn(rows.length);
  for (const row of rows) column.addMicroseconds(first + microseconds(row));
  return column.toParameter();
}

/** Encodes a `text[]`. Undefined and null become NULL. */
export function textArray<Row>(rows: Row[], value: (row: Row) => string | null | undefined): Buffer {
  const column = textColumn(rows.length);
  for (const row of rows) column.addText(value(row));
  return column.toParameter();
}

/** Encodes a `text[]` from a list of strings. */
export function texts(values: string[]): Buffer {
  const column = textColumn(values.length);
  for (const value of values) column.addText(value);
  return column.toParameter();
}

/** Encodes a `jsonb[]`. Undefined becomes NULL. */
export function jsonArray<Row>(rows: Row[], value: (row: Row) => object | undefined): Buffer {
  const column = jsonColumn(rows.length);
  for (const row of rows) column.addJson(value(row));
  return column.toParameter();
}

/** Returns the literal of a `numeric[]`. Its binary format consists of decimal digits as well. */
export function numerics(values: number[]): string {
  return `{${values.join(',')}}`;
}
