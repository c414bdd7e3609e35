import type { ObjectStore } from '../object-store/object-store.ts';
import { MANIFEST, UNFINISHED } from '../platform/files.ts';
import type { Definition } from '../profile/segment.ts';

/** Kinds of data of a workspace that can be exported. Each kind has its own files. */
export const whats = ['profiles', 'events', 'purchases', 'states'] as const;
export type What = (typeof whats)[number];

/** File format; also the extension of the file names. */
export type Format = 'ndjson' | 'ndjson.gz' | 'parquet';

/** The options that define an export. Exports with different options cannot share a location. */
export interface Wanted {
  what: What;
  format: Format;
  workspace: { id: string; name: string };
  /** Null exports all users. */
  segment: { id: string; name: string; definition: Definition } | null;
  /** Names of the fields of profiles in their order; null for other kinds. */
  fields: string[] | null;
  /**
   * For events and purchases, the range of their times in ISO 8601; `until` is exclusive. Null means that the
   * range is open.
   */
  from: string | null;
  until: string | null;
}

/** A completed file of an export. */
export interface ExportedFile {
  key: string;
  rows: number;
  bytes: number;
  /** SHA-256 of the file as it is stored, in hex. */
  sha256: string;
}

/** The snapshot from which a file and the following files were read. Each run of the command adds one. */
export interface Moment {
  as_of: string;
  /** Key of the first file of the snapshot. */
  first_file: string;
}

/** The state of an export; after the last file it becomes the manifest. */
export interface Progress extends Wanted {
  rows: number;
  /** Number of users with a list that was truncated because it exceeds the limit for one user. */
  rows_cut: number;
  /** Months whose rows are in the archive and therefore not in the export. */
  archived_months: string[];
  moments: Moment[];
  files: ExportedFile[];
}

/** The state of an unfinished export, with the position of the last row that was read. */
export interface Unfinished extends Progress {
  after: string;
}

/** Maximum bytes of a state file, which is enough for several hundred thousand files. */
const MAX_STATE_BYTES = 67_108_864;

/** Thrown if the export at a location cannot be resumed, or if rows cannot be exported. */
export class ExportError extends Error {
  override name = 'ExportError';
}

export const writeUnfinished = (store: ObjectStore, progress: Unfinished) =>
  writeJson(store, UNFINISHED, progress);

/** Writes the manifest, which completes the export. */
export async function finish(store: ObjectStore, { after: _, ...manifest }: Unfinished): Promise<Progress> {
  await writeJson(store, MANIFEST, manifest);
  await store.remove(UNFINISHED);
  return manifest;
}

/** Options in which an export must agree with an unfinished one at the same location to resume it. */
const SAME = ['what', 'format', 'workspace', 'segment', 'fields', 'from', 'until'] as const;

/**
 * Reads the state of an unfinished export at this location; undefined if there is none.
 * @throws {ExportError} if the location has a complete export or one with other options
 */
export async function findUnfinished(store: ObjectStore, wanted: Wanted): Promise<Unfinished | undefined> {
  if (await store.stat(MANIFEST))
    throw new ExportError(
      `${store.where} already has a complete export (${MANIFEST}). Name another target with --to.`,
    );
  const storedFile = await store.stat(UNFINISHED);
  if (!storedFile) return undefined;
  const unfinished = await readUnfinished(store, storedFile.bytes);
  for (const part of SAME) {
    if (JSON.stringify(wanted[part]) !== JSON.stringify(unfinished[part]))
      throw new ExportError(
        `${store.where} has an unfinished export with another value of ${part}. Repeat the command with the options of that export, or name another target with --to.`,
      );
  }
  return unfinished;
}

async function readUnfinished(store: ObjectStore, bytes: number): Promise<Unfinished> {
  const what = `${store.where}: ${UNFINISHED}`;
  if (bytes > MAX_STATE_BYTES)
    throw new ExportError(
      `${what} has ${bytes} bytes, more than Penstock writes. Name another target with --to.`,
    );
  const chunks: Buffer[] = [];
  for await (const chunk of await store.get(UNFINISHED)) chunks.push(chunk);
  try {
    const read = JSON.parse(Buffer.concat(chunks).toString()) as Unfinished;
    if (typeof read.after === 'string' && Array.isArray(read.files) && Array.isArray(read.moments))
      return read;
  } catch {
    // Reported by the error below.
  }
  throw new ExportError(`${what} is not the state of an export. Name another target with --to.`);
}

async function writeJson(store: ObjectStore, key: string, document: object): Promise<void> {
  async function* bytes(): AsyncGenerator<Buffer> {
    yield Buffer.from(`${JSON.stringify(document, null, 1)}\n`);
  }
  await store.put(key, bytes());
}
