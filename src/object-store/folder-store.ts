import { createHash, randomUUID } from 'node:crypto';
import { constants, type Dirent } from 'node:fs';
import { type FileHandle, open, readdir, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { Readable } from 'node:stream';
import { makeFolders } from '../platform/files.ts';
import {
  type GetOptions,
  MAX_LISTED,
  type ObjectStore,
  ObjectStoreError,
  type StoredObject,
  type Written,
} from './object-store.ts';

/** Folder for incomplete objects. It is on the same disk, so that a rename completes them. */
const UNFINISHED = '.unfinished';
/** Milliseconds after which an incomplete object counts as abandoned. Writing one file never takes a day. */
const ABANDONED_AFTER_MS = 86_400_000;
const READ_BYTES = 262_144;

/**
 * Opens a store of objects as files that only their owner can read, because they may contain personal data.
 */
export function openFolderStore(folder: string): ObjectStore {
  const root = path.resolve(folder);
  const unfinished = path.join(root, UNFINISHED);
  const pathOf = (key: string) => path.join(root, ...key.split('/'));
  let isSwept = false;

  /**
   * Creates a folder and syncs the folders above it, up to the parent of the root: the root itself may be
   * new, and its name is on disk only after its parent was synced.
   */
  async function makeFolder(folder: string): Promise<void> {
    const first = await makeFolders(folder, { mode: 0o700 });
    if (first === undefined || first.startsWith(root + path.sep)) return;
    for (let made = first; ; made = path.join(made, path.relative(made, root).split(path.sep)[0]!)) {
      await syncFolder(path.dirname(made));
      if (made === root) return;
    }
  }

  /**
   * Syncs all folders of an object, because another process may have created them and died before its own
   * sync.
   */
  async function syncFolders(target: string): Promise<void> {
    for (let folder = path.dirname(target); ; folder = path.dirname(folder)) {
      await syncFolder(folder);
      if (folder === root) return;
    }
  }

  async function sweep(): Promise<void> {
    isSwept = true;
    const left = await readdir(unfinished).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return [];
      throw error;
    });
    for (const name of left) {
      const file = path.join(unfinished, name);
      const stats = await stat(file).catch(() => undefined);
      if (stats && stats.mtimeMs < Date.now() - ABANDONED_AFTER_MS) await rm(file, { force: true });
    }
  }

  async function put(
    key: string,
    from: AsyncIterable<Uint8Array>,
    { signal }: { signal?: AbortSignal } = {},
  ): Promise<Written> {
    const target = pathOf(key);
    const temporary = path.join(unfinished, randomUUID());
    const hash = createHash('sha256');
    const written = { bytes: 0, sha256: '' };
    const orNameFile = <T>(doing: Promise<T>) => inWords(doing, { name: target, doing: 'written' });
    await orNameFile(makeFolder(path.dirname(target)));
    await orNameFile(makeFolders(unfinished, { mode: 0o700 }));
    if (!isSwept) await orNameFile(sweep());
    const file = await orNameFile(open(temporary, 'wx', 0o600));
    try {
      for await (const chunk of from) {
        signal?.throwIfAborted();
        await orNameFile(writeAll(file, chunk));
        hash.update(chunk);
        written.bytes += chunk.length;
      }
      signal?.throwIfAborted();
      await orNameFile(file.sync());
      await file.close();
      await orNameFile(rename(temporary, target));
    } catch (error) {
      await file.close().catch(() => {});
      await rm(temporary, { force: true }).catch(() => {});
      throw error;
    }
    await orNameFile(syncFolders(target));
    return { ...written, sha256: hash.digest('hex') };
  }

  async function get(key: string, { range, signal }: GetOptions = {}): Promise<Readable> {
    const name = pathOf(key);
    const orNameFile = <T>(doing: Promise<T>) => inWords(doing, { name, doing: 'read' });
    // A link could lead out of the folder.
    const file = await orNameFile(open(name, constants.O_RDONLY | constants.O_NOFOLLOW));
    if (!(await file.stat()).isFile()) {
      await file.close();
      throw new ObjectStoreError('missing', `${name}: the file does not exist`);
    }
    async function* bytes(): AsyncGenerator<Buffer> {
      let at = range?.first ?? 0;
      const end = range ? range.last + 1 : Number.POSITIVE_INFINITY;
      try {
        while (at < end) {
          signal?.throwIfAborted();
          const buffer = Buffer.allocUnsafe(Math.min(READ_BYTES, end - at));
          const { bytesRead } = await orNameFile(file.read(buffer, 0, buffer.length, at));
          if (bytesRead === 0) return;
          at += bytesRead;
          yield buffer.subarray(0, bytesRead);
        }
      } finally {
        await file.close();
      }
    }
    return closing(Readable.from(bytes(), { objectMode: false }), file);
  }

  async function statObject(key: string): Promise<StoredObject | undefined> {
    const name = pathOf(key);
    try {
      const stats = await inWords(stat(name), { name, doing: 'read' });
      return stats.isFile() ? { key, bytes: stats.size, modifiedAt: stats.mtime } : undefined;
    } catch (error) {
      if (error instanceof ObjectStoreError && error.reason === 'missing') return undefined;
      throw error;
    }
  }

  /** Yields keys in order. Only the entries of one folder per level are in memory. */
  async function* keysUnder(parent: string, prefix: string, after: string): AsyncGenerator<string> {
    const name = path.join(root, parent);
    const entries = await inWords(readdir(name, { withFileTypes: true }), { name, doing: 'listed' }).catch(
      (error: ObjectStoreError) => {
        if (error.reason === 'missing') return [];
        throw error;
      },
    );
    const keys = entries
      .filter((entry) => !entry.name.startsWith('.') && (entry.isFile() || entry.isDirectory()))
      .map((entry: Dirent) => `${parent}${entry.name}${entry.isDirectory() ? '/' : ''}`)
      .sort();
    for (const key of keys) {
      if (key.endsWith('/')) {
        const isAfter = key > after || after.startsWith(key);
        if (isAfter && (key.startsWith(prefix) || prefix.startsWith(key)))
          yield* keysUnder(key, prefix, after);
      } else if (key > after && key.startsWith(prefix)) yield key;
    }
  }

  return {
    where: root,
    put,
    get,
    sweep,
    stat: statObject,
    async list(prefix, { after = '', limit = MAX_LISTED } = {}) {
      const objects: StoredObject[] = [];
      const maxObjects = Math.min(Math.max(limit, 1), MAX_LISTED);
      const parent = prefix.slice(0, prefix.lastIndexOf('/') + 1);
      for await (const key of keysUnder(parent, prefix, after)) {
        if (objects.length === maxObjects) return { objects, next: objects.at(-1)!.key };
        // The object may have been removed meanwhile.
        const object = await statObject(key);
        if (object) objects.push(object);
      }
      return { objects, next: null };
    },
    async remove(key) {
      const name = pathOf(key);
      const removed = rm(name, { force: true }).then(() => syncFolder(path.dirname(name)));
      // An object whose folder does not exist does not exist either.
      await inWords(removed, { name, doing: 'removed' }).catch((error: ObjectStoreError) => {
        if (error.reason !== 'missing') throw error;
      });
    },
    close() {},
  };
}

/**
 * Closes the file with the stream: if the stream was never read, the `finally` of its generator does not run.
 */
function closing(stream: Readable, file: FileHandle): Readable {
  return stream.once('close', () => void file.close().catch(() => {}));
}

async function writeAll(file: FileHandle, chunk: Uint8Array): Promise<void> {
  for (let at = 0; at < chunk.length; ) at += (await file.write(chunk, at)).bytesWritten;
}

/** Syncs a folder, which stores the names of its files on disk. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, constants.O_RDONLY);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Error for a write that fails with ENOENT: the folder of the file could not be created. */
const FOLDER_NOT_CREATED: [ObjectStoreError['reason'], string] = ['config', 'no folder can be created there'];

const reasons: Record<string, [ObjectStoreError['reason'], string]> = {
  ENOSPC: ['full', 'its disk is full'],
  EDQUOT: ['full', 'its quota is used up'],
  EFBIG: ['full', 'it is larger than the file system allows'],
  ENOENT: ['missing', 'the file does not exist'],
  EACCES: ['config', 'permission denied'],
  EPERM: ['config', 'permission denied'],
  EROFS: ['config', 'its file system is read-only'],
  EEXIST: ['config', 'a part of its path is a file, not a folder'],
  ENOTDIR: ['config', 'a part of its path is a file, not a folder'],
  EISDIR: ['config', 'it is a folder'],
  ELOOP: ['config', 'it is a link'],
  ENAMETOOLONG: ['config', 'its name is too long'],
};

/** Replaces a file system error by an error that names the file. */
export function inWords<T>(
  doing: Promise<T>,
  { name, doing: verb }: { name: string; doing: string },
): Promise<T> {
  return doing.catch((error: NodeJS.ErrnoException) => {
    const isMissingFolder = verb === 'written' && error.code === 'ENOENT';
    const explanation = isMissingFolder ? FOLDER_NOT_CREATED : reasons[error.code ?? ''];
    const [reason, words] = explanation ?? ['failed', error.message];
    const code = error.code && reason !== 'failed' ? ` (${error.code})` : '';
    throw new ObjectStoreError(reason, `${name} cannot be ${verb}: ${words}${code}`, { cause: error });
  });
}
