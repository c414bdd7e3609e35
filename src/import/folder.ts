import { statSync } from 'node:fs';
import { opendir, stat } from 'node:fs/promises';
import path from 'node:path';
import { ImportError } from './texts.ts';

/** Files of a folder that are imported at once: each of them is a row of the answer. */
const MOST_FILES = 10_000;

/** What may lie in it, with what is passed over, and folders within each other. */
const MOST_ENTRIES = 100_000;
const DEEPEST = 32;

/** Hidden, unfinished as programs that write many files name it, the list of an export, or rows that an import has refused. */
const PASSED_OVER = /^[._]|^manifest\.json$|\.rejects\.ndjson$/;

/** Lies in the folder of an export that goes on. */
const UNFINISHED = 'unfinished.json';

export function isFolder(name: string): boolean {
  return statSync(name, { throwIfNoEntry: false })?.isDirectory() ?? false;
}

/**
 * Files beneath a folder, in the order of their paths. Without those that begin with a dot or an underscore, those that
 * hold refused rows, and the manifest of an export. A link to a file is a file.
 * @throws {ImportError} when it has none, too many, or what is no file
 */
export async function filesOf(folder: string): Promise<string[]> {
  const files: string[] = [];
  let entries = 0;

  async function look(within: string, depth: number): Promise<void> {
    if (depth > DEEPEST) throw new ImportError(`${within} lies more than ${DEEPEST} folders deep`);
    for await (const entry of await opendir(within)) {
      if (++entries > MOST_ENTRIES)
        throw new ImportError(
          `${folder} has more than ${MOST_ENTRIES} entries: import its folders one by one`,
        );
      if (PASSED_OVER.test(entry.name)) continue;
      const place = path.join(within, entry.name);
      if (entry.name === UNFINISHED)
        throw new ImportError(`${within} holds an export that is not whole: run it again to its end`);
      if (entry.isDirectory()) await look(place, depth + 1);
      else await add(place);
    }
  }

  async function add(file: string): Promise<void> {
    // A link to a folder may lead back to where it lies.
    if (!(await stat(file)).isFile()) throw new ImportError(`${file} is no file`);
    files.push(file);
    if (files.length > MOST_FILES)
      throw new ImportError(`${folder} has more than ${MOST_FILES} files: import its folders one by one`);
  }

  await look(folder, 1).catch((error: NodeJS.ErrnoException) => {
    if (error instanceof ImportError) throw error;
    throw new ImportError(`${error.path ?? folder} cannot be read: ${error.code}`, { cause: error });
  });
  if (files.length === 0) throw new ImportError(`${folder} has no file in it`);
  return files.sort();
}
