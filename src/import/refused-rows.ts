import { createHash } from 'node:crypto';
import { statSync } from 'node:fs';
import { type FileHandle, open, stat } from 'node:fs/promises';
import path from 'node:path';
import type { Json } from '../profile/json.ts';
import type { Input } from './open-input.ts';
import { ImportError } from './unpack.ts';

/** Maximum characters that are kept of a refused row. */
const MAX_CHARACTERS = 10_000;

/** A row that was refused and had no effect. */
export interface RefusedRow {
  file: string;
  /** Number of the row in the file, or in the archive entry that `file` names. */
  row: number;
  /** Line in which the row begins. */
  line: number;
  /** Column that maps to the field, if the file has a header. */
  column: string | null;
  /** Field that breaks the rule, if the rule concerns a field. */
  field: string | null;
  /** Value of the column. */
  value: Json;
  reason: string;
  /** Text of the row, unchanged. */
  text: string;
}

const cut = (text: string) => text.slice(0, MAX_CHARACTERS);
const cutValue = (value: Json) => (typeof value === 'string' ? cut(value) : value);

/** Returns whether two paths lead to the same file. */
export function isSameFile(one: string, other: string): boolean {
  try {
    const [first, second] = [statSync(one), statSync(other)];
    return first.dev === second.dev && first.ino === second.ino;
  } catch {
    // A path that does not exist yet cannot be the same file.
    return false;
  }
}

/** Maximum bytes of a base name. With the suffixes that are added, every file system accepts the result. */
const MAX_NAME_BYTES = 200;

/**
 * Returns the default path for refused rows: next to the file. For an object of a bucket the path is in the
 * working directory and contains the bucket and the whole key, because users would not find the temporary
 * copy of the object.
 */
export function usualPath({ path: filePath, name }: Pick<Input, 'path' | 'name'>, isDryRun: boolean): string {
  const isObject = filePath !== name;
  let base = isObject ? name.replace(/^s3:\/\//, '').replaceAll('/', '_') : path.basename(filePath);
  if (Buffer.byteLength(base) > MAX_NAME_BYTES) {
    const digest = createHash('sha256').update(name).digest('hex').slice(0, 16);
    base = `${Buffer.from(base)
      .toString('latin1', 0, 100)
      .replace(/[^\x21-\x7e]/g, '-')}-${digest}`;
  }
  return path.join(
    isObject ? '' : path.dirname(filePath),
    `${base}${isDryRun ? '.dry-run' : ''}.rejects.ndjson`,
  );
}

/**
 * Checks that the file for refused rows may be written, so that no file of another program is overwritten.
 * @param own name of the imported file, whose refused rows an interrupted run may have written; undefined if
 * there was no such run
 * @throws {ImportError}
 */
export async function requireFree(refusedPath: string, own: string | undefined): Promise<void> {
  const there = await stat(refusedPath).catch(() => undefined);
  // A device or an empty file has no content to lose.
  if (!there?.isFile() || there.size === 0) return;
  if (own !== undefined && (await beginsWith(refusedPath, JSON.stringify({ file: own }).slice(0, -2))))
    return;
  throw new ImportError(
    `${refusedPath} already exists; move it, choose another file with --rejects, or overwrite it with --force`,
  );
}

/** Returns whether a file begins with a text, or with its beginning if a process died while writing it. */
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
 * Opens the file for refused rows, with one line of JSON per row. The file is created with the first row,
 * readable only by its owner, because rows contain personal data.
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
    /**
     * Truncates the file to `from` bytes. It removes the rows that an interrupted import wrote but did not
     * record as processed.
     */
    async resume(from: number): Promise<void> {
      if (from === 0) return;
      await attempt(async () => {
        handle = await open(path, 'r+', 0o600).catch((error) => {
          if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
          return open(path, 'w', 0o600);
        });
        // An operator may have moved the file away after reading it.
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
        // On a nearly full disk, a write may store fewer bytes than requested.
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
