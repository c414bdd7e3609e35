import { link, mkdtemp, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { DuckDBAppender } from '@duckdb/node-api';
import { type DuckDbModule, identifier, literal } from '../integrations/duckdb.ts';
import { shortened } from '../platform/format.ts';
import { uuidOf } from '../profile/values.ts';
import {
  connectTo,
  type ParquetColumn,
  ParquetError,
  type ParquetRow,
  type ParquetType,
  sha256Of,
  toParquetError,
} from './parquet.ts';

interface ParquetFile {
  rows: number;
  bytes: number;
  /** SHA-256 of the file in hex. */
  sha256: string;
}

interface WriteOptions {
  /** Path on a local disk, where no file exists yet. */
  file: string;
  columns: readonly ParquetColumn[];
  compression?: 'zstd' | 'snappy';
  signal?: AbortSignal | undefined;
}

/** Maximum characters and rows that are passed to DuckDB together. */
const PIECE_CHARACTERS = 4_194_304;
const PIECE_ROWS = 8192;
/** Maximum bytes of a row group before compression. A reader holds one row group in memory. */
const ROW_GROUP_BYTES = 33_554_432;

/**
 * Writes rows as one Parquet file in their order, with memory that does not depend on their number. The rows
 * pass through a table on the same disk, which temporarily takes as much space as the rows. The file is
 * complete when the promise resolves, and does not exist if it rejects.
 * @throws {ParquetError} for a value that does not match the type of its column, with the number of the row,
 * from 1, and the field
 */
export async function writeParquet(
  rows: AsyncIterable<ParquetRow> | Iterable<ParquetRow>,
  options: WriteOptions,
): Promise<ParquetFile> {
  const { file } = options;
  const folder = await mkdtemp(path.join(path.dirname(file), '.parquet-'));
  const whole = path.join(folder, 'rows.parquet');
  try {
    const count = await collect(rows, options, { folder, whole });
    const sha256 = await sha256Of(whole);
    // `link` fails if a file of this name exists.
    await link(whole, file);
    return { rows: count, bytes: (await stat(file)).size, sha256 };
  } catch (error) {
    throw toParquetError(error, file);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** @returns the number of rows in the file `whole` */
async function collect(
  rows: AsyncIterable<ParquetRow> | Iterable<ParquetRow>,
  options: WriteOptions,
  { folder, whole }: { folder: string; whole: string },
): Promise<number> {
  const { columns, compression = 'zstd', signal } = options;
  const { connection, duckDb, close } = await connectTo(folder, path.join(folder, 'rows.db'));
  try {
    const declared = columns.map(({ name, type }) => `${identifier(name)} ${sqlType(type)}`);
    await connection.run(`create table given (${declared.join(', ')})`);
    const appender = await connection.createAppender('given');
    const count = await appendAll(appender, rows, { ...options, duckDb });
    appender.closeSync();
    signal?.throwIfAborted();
    await connection.run(
      `copy given to ${literal(whole)} (format parquet, compression ${compression}, row_group_size_bytes ${ROW_GROUP_BYTES})`,
    );
    return count;
  } finally {
    close();
  }
}

async function appendAll(
  appender: DuckDBAppender,
  rows: AsyncIterable<ParquetRow> | Iterable<ParquetRow>,
  { columns, duckDb, file, signal }: WriteOptions & { duckDb: DuckDbModule },
): Promise<number> {
  let count = 0;
  let piece = { rows: 0, characters: 0 };
  for await (const row of rows) {
    count += 1;
    for (const { name, member = name, type } of columns) {
      const value = row[member] ?? null;
      if (value === null) appender.appendNull();
      else if (!append(appender, { value, type, duckDb })) {
        throw new ParquetError(
          `${file}: row ${count}: ${name} must be ${describeType(type)}, and is ${formatValue(value)}`,
        );
      }
      if (typeof value === 'string') piece.characters += value.length;
    }
    appender.endRow();
    piece.rows += 1;
    if (piece.rows < PIECE_ROWS && piece.characters < PIECE_CHARACTERS) continue;
    appender.flushSync();
    piece = { rows: 0, characters: 0 };
    // The rows may arrive without a wait, so let other work run.
    await nextTurn();
    signal?.throwIfAborted();
  }
  return count;
}

const DECIMAL = /^(-?)(\d+)(?:\.(\d+))?$/;
/** A time with at most microseconds and an offset. */
const TIME = /^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:\.(\d{1,6}))?(?:Z|[+-]\d{2}(?::?\d{2})?)$/;
const BIGINT = { min: -(2n ** 63n), max: 2n ** 63n - 1n };

/** @returns false if the value does not match the type */
function append(
  appender: DuckDBAppender,
  { value, type, duckDb }: { value: unknown; type: ParquetType; duckDb: DuckDbModule },
): boolean {
  if (typeof type === 'object') {
    const scaled = scaledOf(value, type.decimal);
    if (scaled === undefined) return false;
    const { digits, scale } = type.decimal;
    appender.appendDecimal(new duckDb.DuckDBDecimalValue(scaled, digits, scale));
    return true;
  }
  switch (type) {
    case 'uuid':
      if (typeof value !== 'string' || uuidOf(value) === undefined) return false;
      appender.appendUUID(duckDb.uuidValue(BigInt(`0x${value.replaceAll('-', '')}`)));
      return true;
    case 'text':
    case 'json':
      if (typeof value !== 'string') return false;
      appender.appendVarchar(value);
      return true;
    case 'timestamp': {
      const micros = microsOf(value);
      if (micros === undefined) return false;
      appender.appendTimestampTZ(duckDb.timestampTZValue(micros));
      return true;
    }
    case 'double':
      if (typeof value !== 'number') return false;
      appender.appendDouble(value);
      return true;
    case 'bigint': {
      const whole = typeof value === 'number' && Number.isSafeInteger(value) ? BigInt(value) : value;
      if (typeof whole !== 'bigint' || whole < BIGINT.min || whole > BIGINT.max) return false;
      appender.appendBigInt(whole);
      return true;
    }
    case 'boolean':
      if (typeof value !== 'boolean') return false;
      appender.appendBoolean(value);
      return true;
  }
}

/** Returns a decimal text times 10^scale as an exact integer; undefined if it has too many digits. */
function scaledOf(value: unknown, { digits, scale }: { digits: number; scale: number }): bigint | undefined {
  const [, sign, whole, fraction = ''] = (typeof value === 'string' && DECIMAL.exec(value)) || [];
  if (whole === undefined) return undefined;
  const significant = fraction.replace(/0+$/, '');
  if (significant.length > scale) return undefined;
  const scaled = BigInt(whole + significant.padEnd(scale, '0'));
  if (scaled >= 10n ** BigInt(digits)) return undefined;
  return sign ? -scaled : scaled;
}

/**
 * Returns microseconds since 1970. Date only has milliseconds, so the remaining digits are added separately.
 */
function microsOf(value: unknown): bigint | undefined {
  if (value instanceof Date) {
    return Number.isNaN(value.getTime()) ? undefined : BigInt(value.getTime()) * 1000n;
  }
  const [text, fraction = ''] = (typeof value === 'string' && TIME.exec(value)) || [];
  if (text === undefined) return undefined;
  const milliseconds = Date.parse(text.replace(' ', 'T').replace(/([+-]\d{2})$/, '$1:00'));
  if (Number.isNaN(milliseconds)) return undefined;
  return BigInt(milliseconds) * 1000n + BigInt(fraction.padEnd(6, '0').slice(3));
}

function sqlType(type: ParquetType): string {
  if (typeof type === 'object') return `decimal(${type.decimal.digits}, ${type.decimal.scale})`;
  return { uuid: 'uuid', text: 'varchar', json: 'varchar', timestamp: 'timestamptz' }[type as string] ?? type;
}

function describeType(type: ParquetType): string {
  if (typeof type === 'object') {
    return `a decimal of at most ${type.decimal.digits} digits, ${type.decimal.scale} of them after the decimal point`;
  }
  return {
    uuid: 'a UUID',
    text: 'a text',
    json: 'a text',
    timestamp: 'a time with its offset',
    double: 'a number',
    bigint: 'a whole number of 64 bits',
    boolean: 'true or false',
  }[type];
}

function formatValue(value: unknown): string {
  const text = typeof value === 'bigint' ? String(value) : (JSON.stringify(value) ?? typeof value);
  return shortened(text, 100);
}
