import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/platform/files.ts';

const page = readFileSync(path.join(packageRoot, 'docs/backup.md'), 'utf8');

/** Commands of docs/backup.md by their first line, a comment that describes them. */
const blocks = new Map(
  [...page.matchAll(/^[ \d.]*```sh\n *# (.+)\n([\s\S]+?)^ *```$/gm)].map(([, name, commands]) => [
    name!,
    commands!,
  ]),
);

/**
 * Runs commands of docs/backup.md unchanged.
 * @param env variables that they use, for instance `$BACKUP`
 * @throws {Error} with their output, if one of them fails or uses a missing variable
 */
export function follow(name: string, env: Record<string, string>, folders: string[] = []): void {
  const commands = blocks.get(name);
  if (!commands)
    throw new Error(`docs/backup.md has no commands "${name}", but ${[...blocks.keys()].join(', ')}`);
  const { status, stderr, stdout } = spawnSync('/bin/sh', ['-euc', commands], {
    cwd: packageRoot,
    env: { PATH: [...folders, process.env.PATH].join(path.delimiter), ...env },
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(`${name}: ${stderr}${stdout}`);
}

/** Names of the commands, in the order of the page. */
export const documented = [...blocks.keys()];
