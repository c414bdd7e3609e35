import { statSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { ImportError } from './input.ts';

/** Characters of a refused row that are kept. */
const MOST_SHOWN = 10_000;

/** A row that had no effect. */
export interface RefusedRow {
  file: string;
  /** Of the file, or of its entry that `file` names. */
  row: number;
  /** That the rule is about, if it is about one. */
  field: string | null;
  reason: string;
  /** As it stands there. */
  text: string;
}

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
        `refused rows cannot be written to ${path}: ${why}; free it, and run the same command again to go on`,
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
        .map((row) => `${JSON.stringify({ ...row, text: row.text.slice(0, MOST_SHOWN) })}\n`)
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
