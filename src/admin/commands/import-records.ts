import type { Command } from 'commander';
import type { Preview } from '../../import/import-file.ts';
import { dropImport, type ListedImport, listImports, withImportLock } from '../../store/imports.ts';
import { addVerb, parseCount, parseId, Refusal } from '../command.ts';
import { commandLine, findWorkspaceId, withInstallation } from '../installation.ts';
import { pageOf, printJson, printPage, printRow, type Row, table } from '../output.ts';

/** Adds the verbs `list` and `drop`, which list the records of imports and delete one. */
export function addImportRecords(noun: Command): void {
  addVerb(noun, 'list', {
    sentence: 'List the imports, oldest first.',
    example: 'import list --workspace default --json',
  })
    .option('--workspace <workspace>', 'only imports of this workspace (name or id)')
    .option('--limit <number>', 'maximum number of imports to show', parseCount, 100)
    .option('--after <id>', 'start after this import (paging)', parseId)
    .action(list);
  addVerb(noun, 'drop', {
    sentence:
      'Delete the record of an import. The same file then starts again from its first row, and rows that are not yet enqueued are lost.',
    example: 'import drop 019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f',
  })
    .argument('<id>', 'id of the import', parseId)
    .action(drop);
}

async function list(_: unknown, command: Command): Promise<void> {
  const { workspace, limit, after, json } = command.optsWithGlobals<{
    workspace?: string;
    limit: number;
    after?: string;
    json?: boolean;
  }>();
  await withInstallation(async ({ database }) => {
    const workspaceId = await findWorkspaceId(database, workspace);
    const found = await listImports(database.pool, {
      ...(workspaceId !== undefined && { workspaceId }),
      ...(after !== undefined && { after }),
      limit: limit + 1,
    });
    const { shown, next } = pageOf(found, limit, (last) => last.id);
    printPage(json, 'imports', { rows: shown.map(rowOf), next });
  });
}

async function drop(id: string, _: unknown, command: Command): Promise<void> {
  const { json } = command.optsWithGlobals<{ json?: boolean }>();
  await withInstallation(async ({ database: { pool } }) => {
    const [found] = await listImports(pool, { id, limit: 1 });
    if (!found) throw new Refusal(`no import has the id ${id}`);
    const dropped = await withImportLock(pool, found, async () => {
      await dropImport(pool, found, commandLine());
      return true;
    });
    if (!dropped) throw new Refusal(`${found.file}: a process is importing it; stop that process first`);
    printRow(json, { ...rowOf(found), state: 'dropped' });
  });
}

function rowOf({ id, workspace, file, startedAt, finishedAt, ...counts }: ListedImport): Row {
  const { rows, accepted, refused } = counts;
  return {
    ...{ id, workspace, file, state: finishedAt ? 'imported' : 'unfinished' },
    ...{ rows, accepted, refused },
    started_at: startedAt.toISOString(),
    finished_at: finishedAt?.toISOString() ?? null,
  };
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
