import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';

/** The folder of package.json, prisma/ and the Procfile, from the sources as well as from dist/. */
export const packageRoot = findUp(import.meta.dirname);

function findUp(folder: string): string {
  if (existsSync(path.join(folder, 'package.json'))) return folder;
  const parent = path.dirname(folder);
  if (parent === folder) throw new Error(`no package.json above ${import.meta.dirname}`);
  return findUp(parent);
}

/** The release, as package.json has it. */
export const packageVersion: string = JSON.parse(
  readFileSync(path.join(packageRoot, 'package.json'), 'utf8'),
).version;
