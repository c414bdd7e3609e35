import { mkdir, stat } from 'node:fs/promises';
import path from 'node:path';

/**
 * Makes a folder and those above it that are missing, one after the other. Where nothing can be made, as in /proc,
 * Node's own way of making all of them tries for ever.
 * @returns the first that it has made; undefined: all were there
 * @throws the system's error; ENOENT where nothing can be made
 */
export async function makeFolders(
  folder: string,
  { mode }: { mode?: number } = {},
): Promise<string | undefined> {
  const missing: string[] = [];
  for (let above = path.resolve(folder); !(await isThere(above)); above = path.dirname(above))
    missing.unshift(above);
  for (const one of missing) {
    try {
      await mkdir(one, { mode });
    } catch (error) {
      // Somebody else may have made it meanwhile.
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST' || !(await isThere(one))) throw error;
    }
  }
  return missing[0];
}

async function isThere(name: string): Promise<boolean> {
  try {
    await stat(name);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw error;
  }
}
