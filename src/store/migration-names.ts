import { readdirSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../package-root.ts';

/** The folder of our migrations. */
export const MIGRATIONS = path.join(packageRoot, 'prisma/migrations');

/** The names of our migrations, in order. */
export function migrationNames(): string[] {
  return readdirSync(MIGRATIONS, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name)
    .sort();
}
