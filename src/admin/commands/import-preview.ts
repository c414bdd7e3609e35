import type { Preview } from '../../import/import-file.ts';
import { printJson, table } from '../output.ts';

/** Where columns go; of an archive, with the file in front, those of each file whose columns are others than before. */
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

/** For people: where columns go, and what the first rows become. */
export function describe(preview: Preview): void {
  const columns = columnsOf(preview);
  if (columns.length > 0) process.stdout.write(`${table(columns)}\n`);
  for (const { row, objects, refused, warnings } of preview.first) {
    process.stdout.write(`row ${row}${refused === null ? '' : `, refused: ${refused}`}\n`);
    for (const { object } of objects ?? []) printJson(object);
    for (const warning of warnings) process.stdout.write(`warning: ${warning}\n`);
  }
  process.stdout.write('\n');
}
