import { createHash } from 'node:crypto';
import { statSync } from 'node:fs';
import { type FileHandle, open, stat } from 'node:fs/promises';
import path from 'node:path';
import type { Json } from '../profile/json.ts';
import type { Input } from './open-input.ts';
import { ImportError } from './unpack.ts';

/** Characters of a refused row that are kept. */
const MOST_SHOWN = 10_000;

/** A row that had no effect. */
export interface RefusedRow {
  file: string;
  /** Of the file, or of its entry that `file` names. */
  row: number;
  /** The line in which the row begins. */
  line: number;
  /** The column that became the field, of a file with a header. */
  column: string | null;
  /** That the rule is about, if it is about one. */
  field: string | null;
  /** What stands in that column. */
  value: Json;
  reason: string;
  /** As it stands there. */
  text: string;
}

const cut = (text: string) => text.slice(0, MOST_SHOWN);
const cutValue = (value: Json) => (typeof value === 'string' ? cut(value) : value);

/** Whether two paths lead to one file, by whatever names. */
export function isSameFile(one: string, other: string): boolean {
  try {
    const [first, second] = [statSync(one), statSync(other)];
    return first.dev === second.dev && first.ino === second.ino;
  } catch {
    // One that is not there yet is no other.
    return false;
  }
}

/** Bytes of a name that any file system takes, with what is put behind it. */
const MOST_NAME_BYTES = 200;

/**
 * Where refused rows go, unless a person says it: beside the file. Those of an object of a bucket, whose copy nobody
 * would find, go into the working folder, by its bucket and whole key.
 */
export function usualPath({ path: place, name }: Pick<Input, 'path' | 'name'>, isDryRun: boolean): string {
  const isObject = place !== name;
  let base = isObject ? name.replace(/^s3:\/\//, '').replaceAll('/', '_') : path.basename(place);
  if (Buffer.byteLength(base) > MOST_NAME_BYTES) {
    const digest = createHash('sha256').update(name).digest('hex').slice(0, 16);
    base = `${Buffer.from(base)
      .toString('latin1', 0, 100)
      .replace(/[^\x21-\x7e]/g, '-')}-${digest}`;
  }
  return path.join(
    isObject ? '' : path.dirname(place),
    `${base}${isDryRun ? '.dry-run' : ''}.rejects.ndjson`,
  );
}

/**
 * Nothing that somebody else has written is written over.
 * @param own the file whose refused rows may stand there already, from a run that was left; undefined: there was none
 * @throws {ImportError}
 */
export async function requireFree(refusedPath: string, own: string | undefined): Promise<void> {
  const there = await stat(refusedPath).catch(() => undefined);
  // A device keeps nothing.
  if (!there?.isFile() || there.size === 0) return;
  if (own !== undefined && (await beginsWith(refusedPath, JSON.stringify({ file: own }).slice(0, -2))))
    return;
  throw new ImportError(
    `${refusedPath} already exists; move it, choose another file with --rejects, or overwrite it with --force`,
  );
}

/** Also when a process has died before it had written all of that. */
async function beginsWith(file: string, text: string): Promise<boolean> {
  const handle = await open(file, 'r');
  try {
    const wanted = Buffer.from(text);
    const { bytesRead, buffer } = await handle.read(Buffer.alloc(wanted.length), 0, wanted.length, 0);
    return wanted.subarray(0, bytesRead).equals(buffer.subarray(0, bytesRead));
  } finally {
    await handle.close();
  }
}

/**
 * The file of refused rows: a line of JSON for each. It is made when the first comes, for nobody else to read: rows name
 * people.
 */
export function openRefusedRows(path: string) {
  let handle: FileHandle | undefined;
  let bytes = 0;

  async function attempt<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      const why = code === 'ENOSPC' ? 'its disk is full' : (code ?? message);
      throw new ImportError(
        `refused rows cannot be written to ${path}: ${why}; fix this and run the same command again to resume`,
        { cause: error },
      );
    }
  }

  return {
    path,
    bytes: () => bytes,
    /** Takes away what an import that was left has written of rows that it was not done with. */
    async goOn(from: number): Promise<void> {
      if (from === 0) return;
      await attempt(async () => {
        handle = await open(path, 'r+', 0o600).catch((error) => {
          if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
          return open(path, 'w', 0o600);
        });
        // Somebody who has taken the file away has read it.
        bytes = Math.min(from, (await handle.stat()).size);
        await handle.truncate(bytes);
      });
    },
    /** Resolves when the rows are on disk. @throws {ImportError} */
    async write(rows: readonly RefusedRow[]): Promise<void> {
      if (rows.length === 0) return;
      const text = rows
        .map((row) => `${JSON.stringify({ ...row, value: cutValue(row.value), text: cut(row.text) })}\n`)
        .join('');
      await attempt(async () => {
        handle ??= await open(path, 'w', 0o600);
        // On a disk that fills up, less is written than was asked for.
        for (let rest = Buffer.from(text); rest.length > 0; ) {
          const { bytesWritten } = await handle.write(rest, 0, rest.length, bytes);
          bytes += bytesWritten;
          rest = rest.subarray(bytesWritten);
        }
        await handle.datasync();
      });
    },
    async close(): Promise<void> {
      await handle?.close();
    },
  };
}

export type RefusedRows = ReturnType<typeof openRefusedRows>;
