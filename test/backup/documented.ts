import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/platform/files.ts';

const page = readFileSync(path.join(packageRoot, 'docs/backup.md'), 'utf8');

/** The commands of docs/backup.md by their first line, which is a comment that says what they do. */
const blocks = new Map(
  [...page.matchAll(/^[ \d.]*```sh\n *# (.+)\n([\s\S]+?)^ *```$/gm)].map(([, name, commands]) => [
    name!,
    commands!,
  ]),
);

/**
 * Runs commands of docs/backup.md as they stand there.
 * @param env what they name, `$BACKUP` for instance
 * @throws {Error} with what they wrote, when one of them fails or names what is not given
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

/** Their names, in the order of the page. */
export const documented = [...blocks.keys()];
