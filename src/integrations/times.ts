const DATE = [
  '([0-9]{4}-(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])',
  '[0-9]{4}-(0[469]|11)-(0[1-9]|[12][0-9]|30)',
  '[0-9]{4}-02-(0[1-9]|1[0-9]|2[0-8])',
  '[0-9]{2}(0[48]|[2468][048]|[13579][26])-02-29',
  '([02468][048]|[13579][26])00-02-29)',
].join('|');
const CLOCK = '([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,9})?)?';
const OFFSET = '( ?(Z|UTC|[+-](0[0-9]|1[0-5])(:?[0-5][0-9])?))?';

/**
 * What is a time in a column of texts, as an expression that Postgres, Redshift and DuckDB read alike: an ISO 8601
 * date, alone or with a time of day behind a T or a space, with or without an offset (none means UTC). Days that no
 * month has do not match: a database would end the whole statement at the first of them. A number is no time, since
 * seconds and milliseconds look alike. Year 0 has to be refused beside it.
 */
export const TIME_PATTERN = `^${DATE}([T ]${CLOCK}${OFFSET})?$`;

/** The form of `SourceRow.updatedAt`. */
const CANONICAL = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;

/** @throws {RangeError} when it is not in the form of `SourceRow.updatedAt`: it becomes part of a statement */
export function assertCanonical(time: string): void {
  if (!CANONICAL.test(time)) throw new RangeError(`no time to the microsecond in UTC: ${time}`);
}

/** Times outside of these have no text that compares as they do. */
export const EARLIEST = '0001-01-01 00:00:00';
export const LATEST = '9999-12-31 23:59:59.999999';
