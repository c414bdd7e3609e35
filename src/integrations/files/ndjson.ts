import type { DuckDBConnection } from '@duckdb/node-api';
import { findColumns, type KnownColumn, knownNames, requireUpdatedAt } from '../columns.ts';
import { KEEP_REJECTS, MOST_LINE_BYTES, PASS_OVER_REJECTS } from './csv.ts';
import type { InputFile } from './input.ts';
import { type FormatReader, literal, nameAll, type Part, readRejects, timeOfText } from './part.ts';

/**
 * NDJSON files: an object on each line. Lines are read as texts and taken apart one by one, so that one that is no JSON
 * is one row, and numbers and payloads keep their digits. The members of all lines are looked at, in one reading more:
 * each line may spell them in its own case.
 */
export const ndjson: FormatReader = { parts, broken: readRejects };

async function parts(
  connection: DuckDBConnection,
  files: readonly InputFile[],
  serviceIdField: string,
): Promise<Part[]> {
  const wanted = knownNames(serviceIdField).map(literal).join(', ');
  const reader = await connection.runAndReadAll(
    `select distinct list_sort(list_filter(json_keys(object), lambda name: lower(name) in (${wanted})))
     from (${objects(readLines(files, PASS_OVER_REJECTS), '')}) where object is not null`,
  );
  const spellings = reader.getRowsJson().map(([names]) => names as string[]);
  const found = new Map<KnownColumn, Set<string>>();
  for (const names of spellings) {
    for (const [column, name] of findColumns(names, serviceIdField, nameAll(files))) {
      found.set(column, (found.get(column) ?? new Set()).add(name));
    }
  }
  if (spellings.length > 0) requireUpdatedAt(found, nameAll(files));
  const expression = (column: KnownColumn) =>
    `coalesce(${[...(found.get(column) ?? []), 'x'].map((name) => `object ->> ${literal(name)}`).join(', ')})`;
  const known = [...found.keys()].filter((column) => column !== 'updated_at');
  return [
    {
      columns: [...found.values()].map(([name]) => ({ name: name!, type: 'json' })),
      from: `(${objects(readLines(files, PASS_OVER_REJECTS), ', line, filename')})`,
      fromKeeping: `(${objects(readLines(files, KEEP_REJECTS), ', line, filename')})`,
      at: timeOfText(expression('updated_at')),
      shown: `case when object is null then filename || ': no JSON object: ' || line else ${expression('updated_at')} end`,
      values: new Map(known.map((column) => [column, expression(column)])),
    },
  ];
}

/** Each line as an object, null when it is none. Lines of nothing but space are none at all. */
function objects(lines: string, others: string): string {
  return `select case when json_valid(line) then case when json_type(line) = 'OBJECT' then line::json end end as object
    ${others} from ${lines} where trim(line, e' \\t\\r') <> ''`;
}

function readLines(files: readonly InputFile[], rejects: string): string {
  return `read_csv([${files.map(({ path }) => literal(path)).join(', ')}], columns = {line: 'VARCHAR'}, ${[
    'auto_detect = false',
    'header = false',
    // No delimiter: JSON has no control characters.
    "delim = e'\\x01'",
    "quote = ''",
    "escape = ''",
    "comment = ''",
    'filename = true',
    `max_line_size = ${MOST_LINE_BYTES}`,
    `buffer_size = ${2 * MOST_LINE_BYTES}`,
    // Lines may end in either way within a file.
    'strict_mode = false',
    rejects,
  ].join(', ')})`;
}
