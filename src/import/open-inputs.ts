import type { BucketAccess } from '../integrations/bucket-client.ts';
import type { Scratch } from '../integrations/files/scratch.ts';
import { SourceError } from '../integrations/source.ts';
import type { Reach } from '../platform/reach.ts';
import type { Watcher } from '../platform/steps.ts';
import { filesOf, isFolder } from './folder.ts';
import { type Input, openInput } from './input.ts';
import { ImportError } from './texts.ts';

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

/** An address of one object, or of all beneath a prefix that ends in a slash. */
const S3 = /^s3:\/\/([^/]+)\/?(.*)$/s;

/** Whether a name means more than one file. */
export const namesMany = (named: string): boolean => (S3.test(named) ? named.endsWith('/') : isFolder(named));

/**
 * What a person has named: a file, all files of a folder, or objects of a bucket, which are fetched one after the other.
 * Each is closed when the next is asked for.
 * @throws {ImportError}
 */
export async function* openInputs(named: string, opening: Opening): AsyncGenerator<Input> {
  const { scratchBytes, reach, watcher, leaving: signal } = opening;
  const [, bucket, prefix] = S3.exec(named) ?? [];
  if (bucket === undefined || prefix === undefined) {
    for (const file of isFolder(named) ? await filesOf(named) : [named])
      yield* untilTaken(openInput(file, { scratchBytes, watcher }));
    return;
  }
  const { region, endpoint, credentials } = await opening.accessTo(bucket);
  // What reaches buckets is large, and seldom needed.
  const { fetchObjects } = await import('../integrations/bucket.ts');
  const place = { type: 's3', bucket, prefix, region, ...(endpoint !== undefined && { endpoint }) } as const;
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
