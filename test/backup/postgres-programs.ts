import { accessSync, constants, existsSync, readdirSync } from 'node:fs';
import path from 'node:path';

/** Programs of one version: a server, and what dumps it. */
const NEEDED = ['initdb', 'postgres', 'pg_dump', 'pg_restore', 'createdb'];

/** Where Debian puts them; elsewhere they are on the PATH. */
const DEBIAN = '/usr/lib/postgresql';

/**
 * The folder of an installed Postgres with pg_dump, the newest; undefined where there is none. The one from npm has no
 * pg_dump, and that of another version refuses it.
 */
export function findPostgresPrograms(): string | undefined {
  const versions = existsSync(DEBIAN) ? readdirSync(DEBIAN) : [];
  const folders = [
    ...versions.sort((one, other) => Number(other) - Number(one)).map((one) => path.join(DEBIAN, one, 'bin')),
    ...(process.env.PATH ?? '').split(path.delimiter).filter(Boolean),
  ];
  return folders.find((folder) => NEEDED.every((name) => isExecutable(path.join(folder, name))));
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
