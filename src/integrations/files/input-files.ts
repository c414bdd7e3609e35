import { constants } from 'node:fs';
import { access, readdir, realpath, stat, symlink } from 'node:fs/promises';
import path from 'node:path';
import type { FileFormat, FolderDefinition } from '../definition.ts';
import { SourceError } from '../source.ts';
import type { Scratch } from './scratch.ts';

/** A file to read. */
export interface InputFile {
  /** As the owner knows it. */
  name: string;
  /** In the scratch folder, under a name of ours: the owner's never becomes part of a statement or a pattern. */
  path: string;
  /** Of a piece of a CSV file: the records before it, without the header. */
  recordsBefore?: number;
  /** Of one that ends in a quote that is never closed: the byte of the file at which it opens. */
  openQuote?: number;
}

const endings: Record<FileFormat, string[]> = {
  csv: ['.csv', '.csv.gz'],
  ndjson: ['.ndjson', '.jsonl', '.json', '.ndjson.gz', '.jsonl.gz', '.json.gz'],
  parquet: ['.parquet'],
};

/** Whether a path has the format's ending. What begins with a dot or an underscore is somebody's unfinished work. */
export function isOfFormat(name: string, format: FileFormat): boolean {
  if (name.split('/').some((part) => /^[._]/.test(part))) return false;
  return endings[format].some((ending) => name.toLowerCase().endsWith(ending));
}

/** Where the input file number `index` of the scratch folder is. */
export function inputPath(scratch: Scratch, index: number, name: string, format: FileFormat): string {
  const packed = format !== 'parquet' && name.toLowerCase().endsWith('.gz') ? '.gz' : '';
  return path.join(scratch.inputs, `${index}.${format}${packed}`);
}

/**
 * Links the definition's files into the scratch folder: one file, or a folder's and its folders' files of the format, by
 * name. A link that leads out of the folder is passed over.
 * @throws {SourceError} `config` when there is none, or one may not be read
 */
export async function linkFiles(
  definition: FolderDefinition,
  scratch: Scratch,
): Promise<(InputFile & { target: string })[]> {
  const files = await findFiles(definition);
  if (files.length === 0) {
    throw new SourceError(
      'config',
      `${definition.path}: there is no file of the format ${definition.format} (${endings[definition.format].join(', ')})`,
    );
  }
  return Promise.all(
    files.map(async ({ name, target }, index) => {
      await access(target, constants.R_OK).catch((error) => {
        throw new SourceError('config', `${name} cannot be read: ${error.code}`, { cause: error });
      });
      const link = inputPath(scratch, index, name, definition.format);
      await symlink(target, link);
      return { name, path: link, target };
    }),
  );
}

async function findFiles({
  path: given,
  format,
}: FolderDefinition): Promise<{ name: string; target: string }[]> {
  try {
    const root = await realpath(given);
    if ((await stat(root)).isFile()) return [{ name: given, target: root }];
    const names = (await readdir(root, { recursive: true }))
      .filter((name) => isOfFormat(name.split(path.sep).join('/'), format))
      .sort();
    const found = [];
    for (const name of names) {
      const target = await realpath(path.join(root, name)).catch(() => undefined);
      if (!target?.startsWith(root + path.sep) || !(await stat(target)).isFile()) continue;
      found.push({ name: path.join(given, name), target });
    }
    return found;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new SourceError('config', `${given} cannot be read: ${code}`, { cause: error });
  }
}
