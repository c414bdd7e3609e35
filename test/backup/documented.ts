import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/platform/files.ts';

const pages = ['backup-embedded', 'backup', 'restore'].map((name) =>
  readFileSync(path.join(packageRoot, `docs/${name}.md`), 'utf8'),
);

/** Commands of the pages by their first line, a comment that describes them. */
const blocks = new Map(
  [...pages.join('\n').matchAll(/^[ \d.]*```sh\n *# (.+)\n([\s\S]+?)^ *```$/gm)].map(([, name, commands]) => [
    name!,
    commands!,
  ]),
);

/**
 * Runs commands of the pages unchanged.
 * @param env variables that they use, for instance `$BACKUP`
 * @throws {Error} with their output, if one of them fails or uses a missing variable
 */
export function follow(name: string, env: Record<string, string>, folders: string[] = []): void {
  const commands = blocks.get(name);
  if (!commands)
    throw new Error(`the pages have no commands "${name}", but ${[...blocks.keys()].join(', ')}`);
  const { status, stderr, stdout } = spawnSync('/bin/sh', ['-euc', commands], {
    cwd: packageRoot,
    env: { PATH: [...folders, process.env.PATH].join(path.delimiter), ...env },
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(`${name}: ${stderr}${stdout}`);
}
