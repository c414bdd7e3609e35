import { brokenRow, findColumns, type KnownColumn, requireUpdatedAt } from '../columns.ts';
import type { SourceRow } from '../source.ts';
import { type CsvHeader, cutCsv, readHeader } from './csv-pieces.ts';
import type { InputFile } from './input.ts';
import { type FormatReader, literal, type Part, readRejects, timeOfText } from './part.ts';

/**
 * Bytes of the longest line. A payload of the longest kind, of which every character is a quote and doubled, and the
 * other columns beside it.
 */
export const MOST_LINE_BYTES = 4_194_304;

/** Lines that cannot be read are kept, for `readRejects`. */
export const KEEP_REJECTS = 'ignore_errors = true, store_rejects = true, rejects_limit = 0';
export const PASS_OVER_REJECTS = 'ignore_errors = true';

/**
 * CSV files: RFC 4180, a header first, everything a text, so that an id keeps its zeros. Files with the same header are
 * one part. An empty value is null.
 */
export const csv: FormatReader = {
  async prepare(files, scratch, signal) {
    const pieces = [];
    for (const file of files) pieces.push(...(await cutCsv(file, scratch, { signal })));
    return pieces;
  },
  parts,
  async *broken(connection, pieces) {
    yield* readRejects(connection, pieces);
    yield pieces.flatMap(openQuote);
  },
};

async function parts(
  _connection: unknown,
  files: readonly InputFile[],
  serviceIdField: string,
): Promise<Part[]> {
  const groups = new Map<string, { header: CsvHeader; files: InputFile[] }>();
  for (const file of files) {
    const header = await readHeader(file);
    if (!header) continue;
    const key = JSON.stringify(header);
    const group = groups.get(key) ?? { header, files: [] };
    groups.set(key, { header, files: [...group.files, file] });
  }
  return [...groups.values()].map(({ header, files }) => {
    const found = findColumns(header.names, serviceIdField, files[0]!.name);
    requireUpdatedAt(found, files[0]!.name);
    const expression = (known: KnownColumn) => `c${header.names.indexOf(found.get(known)!)}`;
    const known = [...found.keys()].filter((column) => column !== 'updated_at');
    return {
      columns: header.names.map((name) => ({ name, type: 'text' })),
      from: readCsv(files, header, PASS_OVER_REJECTS),
      fromKeeping: readCsv(files, header, KEEP_REJECTS),
      at: timeOfText(expression('updated_at')),
      shown: expression('updated_at'),
      values: new Map(known.map((column) => [column, expression(column)])),
    };
  });
}

function readCsv(files: readonly InputFile[], { delimiter, names }: CsvHeader, rejects: string): string {
  const columns = names.map((_, index) => `c${index}: 'VARCHAR'`).join(', ');
  return `read_csv([${files.map(({ path }) => literal(path)).join(', ')}], columns = {${columns}}, ${[
    'auto_detect = false',
    'header = true',
    `delim = ${literal(delimiter)}`,
    `quote = '"'`,
    `escape = '"'`,
    `comment = ''`,
    `max_line_size = ${MOST_LINE_BYTES}`,
    `buffer_size = ${2 * MOST_LINE_BYTES}`,
    // A payload may hold line breaks: only from the first byte on is it known which of them end a line.
    'parallel = false',
    rejects,
  ].join(', ')})`;
}

function openQuote({ name, openQuote }: InputFile): SourceRow[] {
  if (openQuote === undefined) return [];
  const text = `${name}: the quote at byte ${openQuote + 1} is not closed; nothing from its line on can be read`;
  return [brokenRow(text, '')];
}
