import type { Json } from '../profile/json.ts';
import { isRecord } from '../profile/values.ts';
import { delimiterOf, type RawRow, scanCsv, scanLines, splitRecord, splitRecords } from './records.ts';
import { ImportError, type Part } from './texts.ts';

/** How the rows of a file are written. */
export const layouts = ['csv', 'ndjson', 'parquet', 'avro'] as const;
export type Layout = (typeof layouts)[number];

/** What a row says: by column, as it stands there. */
export type Values = Record<string, Json>;

/** What could be read of a row, or why it says nothing. */
export type ReadRow = { values: Values } | Refusal;

/** Why a row is refused, and which field of it is to blame; absent: none alone. */
export interface Refusal {
  refused: string;
  field?: string;
}

/** The rows of one part, in their order. */
export interface Rows {
  /** For messages. */
  name: string;
  /** Of a file with a header; of any other, each row says its own. */
  columns: string[] | undefined;
  rows: AsyncIterable<RawRow[]>;
  /** Only of rows that are not passed over. */
  read(row: RawRow): ReadRow;
}

/** @throws {ImportError} when the header is missing, or names a column twice */
export async function readPart(part: Part, layout: Layout, delimiter?: string): Promise<Rows> {
  if (layout === 'csv') return readCsv(part, delimiter);
  return layout === 'ndjson' ? readLines(part) : readTable(part);
}

/** An object of JSON on each line. */
function readLines({ name, bytes }: Part): Rows {
  return { name, columns: undefined, rows: splitRecords(bytes(), scanLines()), read: readObject };
}

/** Rows of a table: where a column has nothing, nothing is said. */
function readTable(part: Part): Rows {
  return {
    ...readLines(part),
    read(row) {
      const said = readObject(row);
      if ('refused' in said) return said;
      return {
        values: Object.fromEntries(Object.entries(said.values).filter(([, value]) => value !== null)),
      };
    },
  };
}

function readObject({ number, text, refused }: RawRow): ReadRow {
  if (refused !== undefined) return { refused };
  let value: Json;
  try {
    value = JSON.parse(number === 1 ? withoutMark(text) : text);
  } catch (error) {
    return { refused: `the line is no JSON: ${(error as Error).message}` };
  }
  return isRecord(value) ? { values: value } : { refused: 'the line is no JSON object' };
}

/** The mark that some programs put at the beginning of a text. */
const withoutMark = (text: string) => (text.startsWith('\ufeff') ? text.slice(1) : text);

/** Most columns of a file. */
const MOST_COLUMNS = 2000;

async function readCsv({ name, bytes }: Part, given: string | undefined): Promise<Rows> {
  const header = withoutMark(await firstLine(bytes()));
  const delimiter = given ?? delimiterOf(header);
  const records = splitRecords(bytes(), scanCsv(delimiter));
  const { done, value: batch } = await records.next();
  const [first, ...others] = done ? [] : batch;
  if (!first || first.refused !== undefined)
    throw new ImportError(`${name}: the header cannot be read: ${first?.refused ?? 'the file has no row'}`);
  const columns = columnsOf(withoutMark(first.text), delimiter, name);

  async function* rows(): AsyncGenerator<RawRow[]> {
    const below = (row: RawRow) => ({ ...row, number: row.number - first!.number });
    if (others.length > 0) yield others.map(below);
    for await (const more of records) yield more.map(below);
  }

  function read({ text, refused }: RawRow): ReadRow {
    if (refused !== undefined) return { refused };
    const cells = splitRecord(text, delimiter);
    if (!cells) return { refused: 'something stands behind a closing quote' };
    if (cells.length !== columns.length)
      return { refused: `the row has ${cells.length} values, and the header ${columns.length} columns` };
    const values: Values = {};
    for (let place = 0; place < columns.length; place++) values[columns[place]!] = cells[place]!;
    return { values };
  }
  return { name, columns, rows: rows(), read };
}

/** Enough of a file to know its delimiter by. */
async function firstLine(chunks: AsyncIterable<Buffer>): Promise<string> {
  for await (const chunk of chunks) {
    const end = chunk.indexOf('\n');
    return chunk.toString('utf8', 0, end === -1 ? chunk.length : end).replace(/\r$/, '');
  }
  return '';
}

function columnsOf(header: string, delimiter: string, name: string): string[] {
  const columns = splitRecord(header, delimiter)?.map((column) => column.trim());
  if (!columns)
    throw new ImportError(`${name}: the header cannot be read: something stands behind a closing quote`);
  if (columns.length > MOST_COLUMNS)
    throw new ImportError(`${name}: the header has more than ${MOST_COLUMNS} columns`);
  columns.forEach((column, place) => {
    if (column === '' || column === '__proto__')
      throw new ImportError(
        `${name}: column ${place + 1} of the header has ${column === '' ? 'no name' : 'a name that no field can have'}`,
      );
    if (columns.indexOf(column) < place)
      throw new ImportError(`${name}: the header has the column ${column} twice`);
  });
  return columns;
}
