import type { Command } from 'commander';
import type { Preview } from '../../import/import-file.ts';
import { imports } from '../../resources/imports.ts';
import { printJson, table } from '../output.ts';
import { addVerbs } from '../resource-commands.ts';

/** Adds the verbs of the described resource: `list` and `drop`. */
export function addImportRecords(noun: Command): void {
  addVerbs(noun, imports);
}

/** Lists the field of each column. If files of an archive differ, each distinct mapping has the name of its file. */
export function columnsOf({ routings }: Preview) {
  const [first, ...others] = routings;
  const seen = new Set([JSON.stringify(first?.columns)]);
  const different = others.filter(({ columns }) => {
    const isNew = !seen.has(JSON.stringify(columns));
    seen.add(JSON.stringify(columns));
    return isNew;
  });
  if (different.length === 0) return (first?.columns ?? []).map((column) => ({ ...column }));
  return [first!, ...different].flatMap(({ file, columns = [] }) =>
    columns.map((column) => ({ file, ...column })),
  );
}

/** Warnings about the headers of a preview, each prefixed with its file name. */
export function warningsOf({ routings }: Preview): string[] {
  return routings.flatMap(({ file, warnings }) => warnings.map((warning) => `${file}: ${warning}`));
}

/** Prints the column mapping and the objects of the first rows. */
export function describe(preview: Preview): void {
  const columns = columnsOf(preview);
  if (columns.length > 0) process.stdout.write(`${table(columns)}\n`);
  for (const warning of warningsOf(preview)) process.stdout.write(`warning: ${warning}\n`);
  for (const { row, objects, refused, warnings } of preview.first) {
    process.stdout.write(`row ${row}${refused === null ? '' : `, refused: ${refused}`}\n`);
    for (const { object } of objects ?? []) printJson(object);
    for (const warning of warnings) process.stdout.write(`warning: ${warning}\n`);
  }
  process.stdout.write('\n');
}
