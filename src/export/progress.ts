import type { ObjectStore } from '../object-store/object-store.ts';
import type { Definition } from '../profile/segment.ts';

/** What is exported: another export at the same place is another one. */
export interface Wanted {
  workspace: { id: string; name: string };
  /** Null: all users. */
  segment: { id: string; name: string; definition: Definition } | null;
  /** Names of the fields, in the order of a row. */
  fields: string[];
}

/** One file that is whole. */
export interface ExportedFile {
  key: string;
  users: number;
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
  format: 'ndjson.gz';
  users: number;
  /** Users of whom a list was longer than is read of one user. */
  users_cut: number;
  moments: Moment[];
  files: ExportedFile[];
}

/** While it goes on: with the id of the last user who was looked at. */
export interface Unfinished extends Progress {
  after: string;
}

/** Written last: where it is, the export is whole. */
export const MANIFEST = 'manifest.json';
const UNFINISHED = 'unfinished.json';

/** Bytes of a document that is read back: some hundred thousand files. */
const MOST_BYTES = 67_108_864;

/** What lies at a place cannot be gone on with. */
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
  for (const part of ['workspace', 'segment', 'fields'] as const) {
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
