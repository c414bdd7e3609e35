import { createWriteStream } from 'node:fs';
import { mkdir, mkdtemp, readdir, rm, stat, statfs } from 'node:fs/promises';
import { hostname, tmpdir } from 'node:os';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import { isAlive } from '../../platform/lifecycle.ts';
import { SourceError } from '../source.ts';

const PREFIX = 'penstock-rows-';
const own = new Set<string>();

/** Share of the free disk space that one run may use; the rest is for sorting and for other programs. */
export const MAX_SHARE_OF_FREE = 0.8;
/** Bytes after which the free space is checked again, because other programs use the disk as well. */
const CHECK_EVERY_BYTES = 16_777_216;

export interface Scratch {
  path: string;
  /** Folder of the copied files, and the only folder that a statement may read. */
  inputs: string;
  /** Maximum bytes of all files. */
  maxBytes: number;
  /**
   * Reserves bytes before they are written.
   * @param name name of the file in messages
   * @throws {SourceError} `config` if the setting is exceeded; `failed` if the disk has too little space
   */
  take(bytes: number, name: string): Promise<void>;
  /** Removes a file and releases its bytes. */
  drop(file: string): Promise<void>;
  remove(): Promise<void>;
}

/**
 * Creates a private folder in the temporary folder of the system.
 * @param maxBytes maximum bytes of all its files
 */
export async function createScratch(maxBytes: number): Promise<Scratch> {
  await removeLeftOvers();
  const folder = await mkdtemp(path.join(tmpdir(), `${PREFIX}${hostname()}-${process.pid}-`));
  own.add(folder);
  const inputs = path.join(folder, 'inputs');
  await mkdir(inputs, { mode: 0o700 });
  const freeAtFirst = await freeOf(folder);
  let taken = 0;
  let checkedAt = 0;

  async function take(bytes: number, name: string): Promise<void> {
    if (taken + bytes > maxBytes) {
      throw new SourceError(
        'config',
        `${name}: the files of this run need more than the ${maxBytes} bytes of disk that SYNC_SCRATCH_BYTES allows, after decompression`,
      );
    }
    if (taken + bytes - checkedAt >= CHECK_EVERY_BYTES) {
      checkedAt = taken + bytes;
      const free = await freeOf(folder);
      if (free - bytes < freeAtFirst * (1 - MAX_SHARE_OF_FREE)) {
        throw new SourceError(
          'failed',
          `${name}: the disk of ${folder} has only ${free} bytes free; a run can use ${MAX_SHARE_OF_FREE * 100} % of the space that was free at its start`,
        );
      }
    }
    taken += bytes;
  }

  async function drop(file: string): Promise<void> {
    const { size } = await stat(file);
    await rm(file);
    taken -= size;
    checkedAt = Math.min(checkedAt, taken);
  }

  async function remove(): Promise<void> {
    await rm(folder, { recursive: true, force: true });
    own.delete(folder);
  }
  return { path: folder, inputs, maxBytes, take, drop, remove };
}

interface Incoming {
  from: Readable;
  /** Name as the owner knows it. */
  name: string;
  /** Path in the scratch folder. */
  to: string;
  /** Whether the input is compressed with gzip. The output is decompressed. */
  packed: boolean;
  signal?: AbortSignal | undefined;
}

/**
 * Copies a file into the scratch folder and decompresses it, so that its owner cannot change it while it is
 * read.
 * @throws {SourceError} like `take`, or the error of reading or decompressing
 */
export async function copyIn(scratch: Scratch, { from, name, to, packed, signal }: Incoming): Promise<void> {
  async function* booked(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    for await (const chunk of chunks) {
      await scratch.take(chunk.length, name);
      yield chunk;
    }
  }
  const write = createWriteStream(to, { flags: 'wx', mode: 0o600 });
  const options = signal ? { signal } : {};
  if (!packed) return pipeline(from, booked, write, options);
  try {
    await pipeline(from, createGunzip({ chunkSize: 262_144 }), booked, write, options);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (!code?.startsWith('Z_')) throw error;
    throw new SourceError('config', `${name} cannot be decompressed: ${message}`, { cause: error });
  }
}

/** Returns the free bytes of the disk for unprivileged users. */
export async function freeOf(folder: string): Promise<number> {
  const { bavail, bsize } = await statfs(folder);
  return bavail * bsize;
}

/**
 * Removes folders of killed processes of this host. In a container, the next process may have the same
 * process id.
 */
async function removeLeftOvers(): Promise<void> {
  const ofHost = `${PREFIX}${hostname()}-`;
  for (const name of await readdir(tmpdir())) {
    const folder = path.join(tmpdir(), name);
    if (!name.startsWith(ofHost) || own.has(folder)) continue;
    const pid = Number.parseInt(name.slice(ofHost.length), 10);
    if (pid !== process.pid && isAlive(pid)) continue;
    await rm(folder, { recursive: true, force: true }).catch(() => {});
  }
}
