import { statfs } from 'node:fs/promises';

/** A disk that this process writes to. */
export interface Disk {
  name: 'data' | 'tmp';
  path: string;
  freeBytes: number;
  sizeBytes: number;
}

/** Reads the disk of a folder; undefined if the folder does not exist or its file system reports no size. */
export async function readDisk(name: Disk['name'], path: string): Promise<Disk | undefined> {
  const stats = await statfs(path).catch(() => undefined);
  if (!stats || stats.blocks === 0) return undefined;
  return { name, path, freeBytes: stats.bavail * stats.bsize, sizeBytes: stats.blocks * stats.bsize };
}
