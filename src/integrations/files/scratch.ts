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

/** Part of the disk's free bytes that one run may take; the rest is for sorting and for others. */
export const MOST_OF_FREE = 0.8;
/** Bytes between two looks at the disk, which others fill as well. */
const LOOK_EVERY = 16_777_216;

export interface Scratch {
  path: string;
  /** Where the files to read are: copies of ours, and the one place that a statement may read. */
  inputs: string;
  /** Bytes that may be taken in all. */
  maxBytes: number;
  /**
   * Books bytes before they are written.
   * @param name of the file that they are of, for the message
   * @throws {SourceError} `config` past the setting; `failed` when the disk has too few
   */
  take(bytes: number, name: string): Promise<void>;
  /** Removes a file and gives its bytes back. */
  drop(file: string): Promise<void>;
  remove(): Promise<void>;
}

/**
 * A new folder under the system's temporary one, for nobody else to read.
 * @param maxBytes that its files may have together
 */
export async function createScratch(maxBytes: number): Promise<Scratch> {
  await removeLeftOvers();
  const folder = await mkdtemp(path.join(tmpdir(), `${PREFIX}${hostname()}-${process.pid}-`));
  own.add(folder);
  const inputs = path.join(folder, 'inputs');
  await mkdir(inputs, { mode: 0o700 });
  const freeAtFirst = await freeOf(folder);
  let taken = 0;
  let looked = 0;

  async function take(bytes: number, name: string): Promise<void> {
    if (taken + bytes > maxBytes) {
      throw new SourceError(
        'config',
        `${name}: the files of this run need more than the ${maxBytes} bytes of disk that SYNC_SCRATCH_BYTES allows, after decompression`,
      );
    }
    if (taken + bytes - looked >= LOOK_EVERY) {
      looked = taken + bytes;
      const free = await freeOf(folder);
      if (free - bytes < freeAtFirst * (1 - MOST_OF_FREE)) {
        throw new SourceError(
          'failed',
          `${name}: the disk of ${folder} has only ${free} bytes free; a run can use ${MOST_OF_FREE * 100} % of the space that was free at its start`,
        );
      }
    }
    taken += bytes;
  }

  async function drop(file: string): Promise<void> {
    const { size } = await stat(file);
    await rm(file);
    taken -= size;
    looked = Math.min(looked, taken);
  }

  async function remove(): Promise<void> {
    await rm(folder, { recursive: true, force: true });
    own.delete(folder);
  }
  return { path: folder, inputs, maxBytes, take, drop, remove };
}

export interface Incoming {
  from: Readable;
  /** As the owner knows it. */
  name: string;
  /** Where it goes in the scratch folder. */
  to: string;
  /** It is packed by gzip; what is written is not. */
  packed: boolean;
  signal?: AbortSignal | undefined;
}

/**
 * Writes a file of somebody else's into the scratch folder, unpacked: what is read afterwards nobody can change.
 * @throws {SourceError} as `take` does; what the reading or the unpacking reports
 */
export async function bringIn(scratch: Scratch, { from, name, to, packed, signal }: Incoming): Promise<void> {
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

/** Bytes of the disk that anybody may take. */
export async function freeOf(folder: string): Promise<number> {
  const { bavail, bsize } = await statfs(folder);
  return bavail * bsize;
}

/** Those of processes of this host that have been killed. In a container, the successor has the same number. */
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
