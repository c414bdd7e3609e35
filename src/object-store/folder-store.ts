import { createHash, randomUUID } from 'node:crypto';
import { constants, type Dirent } from 'node:fs';
import { type FileHandle, open, readdir, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { Readable } from 'node:stream';
import { makeFolders } from '../platform/files.ts';
import {
  type GetOptions,
  MOST_LISTED,
  type ObjectStore,
  ObjectStoreError,
  type StoredObject,
  type Written,
} from './object-store.ts';

/** Where objects lie until they are whole: the same disk, so that a rename brings them to their place. */
const UNFINISHED = '.unfinished';
/** What was left by a process that died: nobody writes a file of a day ago. */
const LEFT_MS = 86_400_000;
const READ_BYTES = 262_144;

/** Objects as files, for their owner alone to read: whatever is in them may name people. */
export function openFolderStore(folder: string): ObjectStore {
  const root = path.resolve(folder);
  const unfinished = path.join(root, UNFINISHED);
  const pathOf = (key: string) => path.join(root, ...key.split('/'));
  let isSwept = false;

  /** The archive itself may be new as well: then its name is on disk when the folder that holds it is. */
  async function makeFolder(folder: string): Promise<void> {
    const first = await makeFolders(folder, { mode: 0o700 });
    if (first === undefined || first.startsWith(root + path.sep)) return;
    for (let made = first; ; made = path.join(made, path.relative(made, root).split(path.sep)[0]!)) {
      await syncFolder(path.dirname(made));
      if (made === root) return;
    }
  }

  /** Whoever made them, the folders of an object are on disk when it is: another process may have died as it made them. */
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
      const found = await stat(file).catch(() => undefined);
      if (found && found.mtimeMs < Date.now() - LEFT_MS) await rm(file, { force: true });
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
    const says = <T>(doing: Promise<T>) => inWords(doing, { name: target, doing: 'written' });
    await says(makeFolder(path.dirname(target)));
    await says(makeFolders(unfinished, { mode: 0o700 }));
    if (!isSwept) await says(sweep());
    const file = await says(open(temporary, 'wx', 0o600));
    try {
      for await (const chunk of from) {
        signal?.throwIfAborted();
        await says(writeAll(file, chunk));
        hash.update(chunk);
        written.bytes += chunk.length;
      }
      signal?.throwIfAborted();
      await says(file.sync());
      await file.close();
      await says(rename(temporary, target));
    } catch (error) {
      await file.close().catch(() => {});
      await rm(temporary, { force: true }).catch(() => {});
      throw error;
    }
    await says(syncFolders(target));
    return { ...written, sha256: hash.digest('hex') };
  }

  async function get(key: string, { range, signal }: GetOptions = {}): Promise<Readable> {
    const name = pathOf(key);
    const says = <T>(doing: Promise<T>) => inWords(doing, { name, doing: 'read' });
    // A link may lead out of the folder.
    const file = await says(open(name, constants.O_RDONLY | constants.O_NOFOLLOW));
    if (!(await file.stat()).isFile()) {
      await file.close();
      throw new ObjectStoreError('missing', `${name}: there is no such file`);
    }
    async function* bytes(): AsyncGenerator<Buffer> {
      let at = range?.first ?? 0;
      const end = range ? range.last + 1 : Number.POSITIVE_INFINITY;
      try {
        while (at < end) {
          signal?.throwIfAborted();
          const buffer = Buffer.allocUnsafe(Math.min(READ_BYTES, end - at));
          const { bytesRead } = await says(file.read(buffer, 0, buffer.length, at));
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
      const found = await inWords(stat(name), { name, doing: 'read' });
      return found.isFile() ? { key, bytes: found.size, modifiedAt: found.mtime } : undefined;
    } catch (error) {
      if (error instanceof ObjectStoreError && error.reason === 'missing') return undefined;
      throw error;
    }
  }

  /** Keys in their order, those of a folder at a time in memory. */
  async function* keysUnder(parent: string, prefix: string, after: string): AsyncGenerator<string> {
    const name = path.join(root, parent);
    const found = await inWords(readdir(name, { withFileTypes: true }), { name, doing: 'listed' }).catch(
      (error: ObjectStoreError) => {
        if (error.reason === 'missing') return [];
        throw error;
      },
    );
    const keys = found
      .filter((entry) => !entry.name.startsWith('.') && (entry.isFile() || entry.isDirectory()))
      .map((entry: Dirent) => `${parent}${entry.name}${entry.isDirectory() ? '/' : ''}`)
      .sort();
    for (const key of keys) {
      if (key.endsWith('/')) {
        const isBehind = key > after || after.startsWith(key);
        if (isBehind && (key.startsWith(prefix) || prefix.startsWith(key)))
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
    async list(prefix, { after = '', limit = MOST_LISTED } = {}) {
      const objects: StoredObject[] = [];
      const most = Math.min(Math.max(limit, 1), MOST_LISTED);
      const parent = prefix.slice(0, prefix.lastIndexOf('/') + 1);
      for await (const key of keysUnder(parent, prefix, after)) {
        if (objects.length === most) return { objects, next: objects.at(-1)!.key };
        // It may have been removed meanwhile.
        const found = await statObject(key);
        if (found) objects.push(found);
      }
      return { objects, next: null };
    },
    async remove(key) {
      const name = pathOf(key);
      const removed = rm(name, { force: true }).then(() => syncFolder(path.dirname(name)));
      // Without its folder it is not there either.
      await inWords(removed, { name, doing: 'removed' }).catch((error: ObjectStoreError) => {
        if (error.reason !== 'missing') throw error;
      });
    },
    close() {},
  };
}

/** A stream that nobody has begun to read does not reach the generator's `finally`. */
function closing(stream: Readable, file: FileHandle): Readable {
  return stream.once('close', () => void file.close().catch(() => {}));
}

async function writeAll(file: FileHandle, chunk: Uint8Array): Promise<void> {
  for (let at = 0; at < chunk.length; ) at += (await file.write(chunk, at)).bytesWritten;
}

/** The name of a file is on disk when its folder is. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, constants.O_RDONLY);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Where a file was to be written that is not there, no folder could be made for it. */
const UNMADE: [ObjectStoreError['reason'], string] = ['config', 'no folder can be made there'];

const reasons: Record<string, [ObjectStoreError['reason'], string]> = {
  ENOSPC: ['full', 'its disk is full'],
  EDQUOT: ['full', 'its quota is used up'],
  EFBIG: ['full', 'it is larger than a file may be there'],
  ENOENT: ['missing', 'there is no such file'],
  EACCES: ['config', 'this process has no right to it'],
  EPERM: ['config', 'this process has no right to it'],
  EROFS: ['config', 'its disk can only be read'],
  EEXIST: ['config', 'a part of its path is a file, not a folder'],
  ENOTDIR: ['config', 'a part of its path is a file, not a folder'],
  EISDIR: ['config', 'it is a folder'],
  ELOOP: ['config', 'it is a link'],
  ENAMETOOLONG: ['config', 'its name is too long'],
};

/** What the system says of a file, in words that name it. */
export function inWords<T>(
  doing: Promise<T>,
  { name, doing: verb }: { name: string; doing: string },
): Promise<T> {
  return doing.catch((error: NodeJS.ErrnoException) => {
    const isUnmade = verb === 'written' && error.code === 'ENOENT';
    const known = isUnmade ? UNMADE : reasons[error.code ?? ''];
    const [reason, words] = known ?? ['failed', error.message];
    const code = error.code && reason !== 'failed' ? ` (${error.code})` : '';
    throw new ObjectStoreError(reason, `${name} cannot be ${verb}: ${words}${code}`, { cause: error });
  });
}
