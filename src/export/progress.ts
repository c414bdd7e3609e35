import type { ObjectStore } from '../object-store/object-store.ts';
import { MANIFEST, UNFINISHED } from '../platform/files.ts';
import type { Definition } from '../profile/segment.ts';

/** What of a workspace is exported, a file for each kind. */
export const whats = ['profiles', 'events', 'purchases', 'states'] as const;
export type What = (typeof whats)[number];

/** How the rows of a file are written; also the ending of its name. */
export type Format = 'ndjson' | 'ndjson.gz' | 'parquet';

/** What is exported: another export at the same place is another one. */
export interface Wanted {
  what: What;
  format: Format;
  workspace: { id: string; name: string };
  /** Null: all users. */
  segment: { id: string; name: string; definition: Definition } | null;
  /** Of profiles: names of the fields, in the order of a row. Else null. */
  fields: string[] | null;
  /** Of events and purchases, ISO 8601: by when it happened, without `until` itself. Null: from the first, to the last. */
  from: string | null;
  until: string | null;
}

/** One file that is whole. */
export interface ExportedFile {
  key: string;
  rows: number;
  bytes: number;
  /** Of the file as it lies there, in hex. */
  sha256: string;
}

/** Since which file the rows are those of another moment: one for each time that the command was run. */
export interface Moment {
  as_of: string;
  /** Key of the first file of that moment. */
  first_file: string;
}

/** How far an export has come, and in the end its manifest. */
export interface Progress extends Wanted {
  rows: number;
  /** Users of whom a list was longer than is read of one user. */
  rows_cut: number;
  /** Months of which rows are in the archive, and so not in the export. */
  archived_months: string[];
  moments: Moment[];
  files: ExportedFile[];
}

/** While it goes on: with the place of the last row that was looked at. */
export interface Unfinished extends Progress {
  after: string;
}

/** Bytes of a document that is read back: some hundred thousand files. */
const MOST_BYTES = 67_108_864;

/** What lies at a place cannot be gone on with, or the rows are none that can be exported. */
export class ExportError extends Error {
  override name = 'ExportError';
}

export const writeUnfinished = (store: ObjectStore, progress: Unfinished) =>
  writeJson(store, UNFINISHED, progress);

/** The export is whole from here on. */
export async function finish(store: ObjectStore, { after: _, ...manifest }: Unfinished): Promise<Progress> {
  await writeJson(store, MANIFEST, manifest);
  await store.remove(UNFINISHED);
  return manifest;
}

/** What one export at a place has to have in common with what another run has left there. */
const SAME = ['what', 'format', 'workspace', 'segment', 'fields', 'from', 'until'] as const;

/**
 * How far the same export has come at this place; undefined: nothing of one is there.
 * @throws {ExportError} when another export, or a whole one, is there
 */
export async function findUnfinished(store: ObjectStore, wanted: Wanted): Promise<Unfinished | undefined> {
  if (await store.stat(MANIFEST))
    throw new ExportError(`${store.where} has a whole export already (${MANIFEST}); name another place`);
  const found = await store.stat(UNFINISHED);
  if (!found) return undefined;
  const unfinished = await readUnfinished(store, found.bytes);
  for (const part of SAME) {
    if (JSON.stringify(wanted[part]) !== JSON.stringify(unfinished[part]))
      throw new ExportError(
        `${store.where} has an export that is not finished, of another ${part}; go on with that one, or name another place`,
      );
  }
  return unfinished;
}

async function readUnfinished(store: ObjectStore, bytes: number): Promise<Unfinished> {
  const what = `${store.where}: ${UNFINISHED}`;
  if (bytes > MOST_BYTES)
    throw new ExportError(`${what} has ${bytes} bytes, more than any that was written here`);
  const chunks: Buffer[] = [];
  for await (const chunk of await store.get(UNFINISHED)) chunks.push(chunk);
  try {
    const read = JSON.parse(Buffer.concat(chunks).toString()) as Unfinished;
    if (typeof read.after === 'string' && Array.isArray(read.files) && Array.isArray(read.moments))
      return read;
  } catch {
    // Said below.
  }
  throw new ExportError(`${what} is no account of an export; name another place`);
}

async function writeJson(store: ObjectStore, key: string, document: object): Promise<void> {
  async function* bytes(): AsyncGenerator<Buffer> {
    yield Buffer.from(`${JSON.stringify(document, null, 1)}\n`);
  }
  await store.put(key, bytes());
}
