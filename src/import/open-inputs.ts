import { statSync } from 'node:fs';
import { opendir, stat } from 'node:fs/promises';
import path from 'node:path';
import type { BucketAccess } from '../integrations/bucket-client.ts';
import type { Scratch } from '../integrations/files/scratch.ts';
import { BUCKET_CLIENT, parseS3Address, SourceError } from '../integrations/source.ts';
import { MANIFEST, UNFINISHED } from '../platform/files.ts';
import { importOptional } from '../platform/optional-package.ts';
import type { Reach } from '../platform/reach.ts';
import type { Watcher } from '../platform/steps.ts';
import { type Input, openInput } from './open-input.ts';
import { ImportError } from './unpack.ts';

export interface Opening {
  /** Maximum bytes of disk for reading the files. */
  scratchBytes: number;
  /** Addresses that may be connected to. */
  reach: Reach;
  /** Returns the access to a bucket. Called only if a bucket is opened. */
  accessTo(bucket: string): Promise<BucketAccess>;
  watcher: Watcher;
  leaving: AbortSignal;
}

/**
 * Returns whether a name means more than one file: a folder, or the address of a bucket that ends in a slash.
 */
export const namesMany = (named: string): boolean =>
  parseS3Address(named) ? named.endsWith('/') : isFolder(named);

/**
 * Opens a file, all files of a folder, or objects of a bucket, which are fetched one after the other. Each
 * file is closed when the next one is requested.
 * @throws {ImportError}
 */
export async function* openInputs(named: string, opening: Opening): AsyncGenerator<Input> {
  const { scratchBytes, reach, watcher, leaving: signal } = opening;
  const address = parseS3Address(named);
  if (address === undefined) {
    for (const file of isFolder(named) ? await filesOf(named) : [named])
      yield* closeAfterUse(openInput(file, { scratchBytes, watcher }));
    return;
  }
  const { region, endpoint, credentials } = await opening.accessTo(address.bucket);
  const { fetchObjects } = await importOptional(
    BUCKET_CLIENT,
    () => import('../integrations/bucket.ts'),
    (message, options) => new ImportError(message, options),
  );
  const location = { type: 's3', ...address, region, ...(endpoint !== undefined && { endpoint }) } as const;
  try {
    for await (const { name, path } of fetchObjects(location, credentials, {
      scratchBytes,
      reach,
      watcher,
      signal,
    }))
      yield* closeAfterUse(openInput(name, { path, scratchBytes, watcher }));
  } catch (error) {
    if (error instanceof SourceError) throw new ImportError(error.message, { cause: error });
    throw error;
  }
}

/** Creates a temporary folder for data that is derived from inputs, with at most `maxBytes` bytes. */
export async function openScratch(maxBytes: number): Promise<Scratch> {
  const { createScratch } = await import('../integrations/files/scratch.ts');
  return createScratch(maxBytes);
}

async function* closeAfterUse(opened: Promise<Input>): AsyncGenerator<Input> {
  const input = await opened;
  try {
    yield input;
  } finally {
    await input.close();
  }
}

/** Maximum number of files of a folder in one import. Each file is a row of the result. */
const MAX_FILES = 10_000;

/** Maximum number of entries in a folder, including ignored ones, and maximum depth of nested folders. */
const MAX_ENTRIES = 100_000;
const MAX_DEPTH = 32;

/**
 * Returns whether a file is ignored: hidden files, unfinished files (many programs start their names with an
 * underscore), the manifest of an export, and rows that an import has refused.
 */
const isIgnored = (name: string) => /^[._]|\.rejects\.ndjson$/.test(name) || name === MANIFEST;

export function isFolder(name: string): boolean {
  return statSync(name, { throwIfNoEntry: false })?.isDirectory() ?? false;
}

/**
 * Lists the files of a folder and its subfolders, sorted by path. Names that begin with a dot or an
 * underscore, files of refused rows and the manifest of an export are ignored. A link to a file counts as a
 * file.
 * @throws {ImportError} if there are no files, too many, or something other than a file
 */
export async function filesOf(folder: string): Promise<string[]> {
  const files: string[] = [];
  let entries = 0;

  async function visit(folderPath: string, depth: number): Promise<void> {
    if (depth > MAX_DEPTH)
      throw new ImportError(`${folderPath} is nested more than ${MAX_DEPTH} folders deep`);
    for await (const entry of await opendir(folderPath)) {
      if (++entries > MAX_ENTRIES)
        throw new ImportError(
          `${folder} has more than ${MAX_ENTRIES} entries; import its subfolders one at a time`,
        );
      if (isIgnored(entry.name)) continue;
      const entryPath = path.join(folderPath, entry.name);
      if (entry.name === UNFINISHED)
        throw new ImportError(
          `${folderPath} contains an incomplete export; run the export again until it completes`,
        );
      if (entry.isDirectory()) await visit(entryPath, depth + 1);
      else await add(entryPath);
    }
  }

  async function add(file: string): Promise<void> {
    // A link to a folder may lead back to its own parent.
    if (!(await stat(file)).isFile()) throw new ImportError(`${file} is not a regular file`);
    files.push(file);
    if (files.length > MAX_FILES)
      throw new ImportError(
        `${folder} has more than ${MAX_FILES} files; import its subfolders one at a time`,
      );
  }

  await visit(folder, 1).catch((error: NodeJS.ErrnoException) => {
    if (error instanceof ImportError) throw error;
    throw new ImportError(`${error.path ?? folder} cannot be read: ${error.code}`, { cause: error });
  });
  if (files.length === 0) throw new ImportError(`${folder} contains no file`);
  return files.sort();
}
