import { statSync } from 'node:fs';
import { opendir, stat } from 'node:fs/promises';
import path from 'node:path';
import type { BucketAccess } from '../integrations/bucket-client.ts';
import type { Scratch } from '../integrations/files/scratch.ts';
import { BUCKET_CLIENT, SourceError, s3PlaceOf } from '../integrations/source.ts';
import { MANIFEST, UNFINISHED } from '../platform/files.ts';
import { importOptional } from '../platform/optional-package.ts';
import type { Reach } from '../platform/reach.ts';
import type { Watcher } from '../platform/steps.ts';
import { type Input, openInput } from './open-input.ts';
import { ImportError } from './unpack.ts';

export interface Opening {
  /** Bytes of disk that reading may take. */
  scratchBytes: number;
  /** Addresses that may be connected to. */
  reach: Reach;
  /** Asked for when there is a bucket to be opened. */
  accessTo(bucket: string): Promise<BucketAccess>;
  watcher: Watcher;
  leaving: AbortSignal;
}

/** Whether a name means more than one file; the address of a bucket does when it ends in a slash. */
export const namesMany = (named: string): boolean =>
  s3PlaceOf(named) ? named.endsWith('/') : isFolder(named);

/**
 * What a person has named: a file, all files of a folder, or objects of a bucket, which are fetched one after the other.
 * Each is closed when the next is asked for.
 * @throws {ImportError}
 */
export async function* openInputs(named: string, opening: Opening): AsyncGenerator<Input> {
  const { scratchBytes, reach, watcher, leaving: signal } = opening;
  const address = s3PlaceOf(named);
  if (address === undefined) {
    for (const file of isFolder(named) ? await filesOf(named) : [named])
      yield* untilTaken(openInput(file, { scratchBytes, watcher }));
    return;
  }
  const { region, endpoint, credentials } = await opening.accessTo(address.bucket);
  const { fetchObjects } = await importOptional(
    BUCKET_CLIENT,
    () => import('../integrations/bucket.ts'),
    (message, options) => new ImportError(message, options),
  );
  const place = { type: 's3', ...address, region, ...(endpoint !== undefined && { endpoint }) } as const;
  try {
    for await (const { name, path } of fetchObjects(place, credentials, {
      scratchBytes,
      reach,
      watcher,
      signal,
    }))
      yield* untilTaken(openInput(name, { path, scratchBytes, watcher }));
  } catch (error) {
    if (error instanceof SourceError) throw new ImportError(error.message, { cause: error });
    throw error;
  }
}

/** A folder of the temporary one for what is made of inputs, of so many bytes at most. */
export async function openScratch(maxBytes: number): Promise<Scratch> {
  const { createScratch } = await import('../integrations/files/scratch.ts');
  return createScratch(maxBytes);
}

async function* untilTaken(opened: Promise<Input>): AsyncGenerator<Input> {
  const input = await opened;
  try {
    yield input;
  } finally {
    await input.close();
  }
}

/** Files of a folder that are imported at once: each of them is a row of the answer. */
const MOST_FILES = 10_000;

/** What may lie in it, with what is passed over, and folders within each other. */
const MOST_ENTRIES = 100_000;
const DEEPEST = 32;

/** Hidden, unfinished as programs that write many files name it, the list of an export, or rows that an import has refused. */
const isPassedOver = (name: string) => /^[._]|\.rejects\.ndjson$/.test(name) || name === MANIFEST;

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
    if (depth > DEEPEST) throw new ImportError(`${within} is nested more than ${DEEPEST} folders deep`);
    for await (const entry of await opendir(within)) {
      if (++entries > MOST_ENTRIES)
        throw new ImportError(
          `${folder} has more than ${MOST_ENTRIES} entries; import its subfolders one at a time`,
        );
      if (isPassedOver(entry.name)) continue;
      const place = path.join(within, entry.name);
      if (entry.name === UNFINISHED)
        throw new ImportError(
          `${within} contains an incomplete export; run the export again until it completes`,
        );
      if (entry.isDirectory()) await look(place, depth + 1);
      else await add(place);
    }
  }

  async function add(file: string): Promise<void> {
    // A link to a folder may lead back to where it lies.
    if (!(await stat(file)).isFile()) throw new ImportError(`${file} is not a regular file`);
    files.push(file);
    if (files.length > MOST_FILES)
      throw new ImportError(
        `${folder} has more than ${MOST_FILES} files; import its subfolders one at a time`,
      );
  }

  await look(folder, 1).catch((error: NodeJS.ErrnoException) => {
    if (error instanceof ImportError) throw error;
    throw new ImportError(`${error.path ?? folder} cannot be read: ${error.code}`, { cause: error });
  });
  if (files.length === 0) throw new ImportError(`${folder} contains no file`);
  return files.sort();
}
