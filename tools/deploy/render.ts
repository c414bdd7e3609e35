import { execFile } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { deploy, digestOf, type Rendering, renderings } from './renderings.ts';

const run = promisify(execFile);

/**
 * Returns the output of the tool for the present sources, after two lines with the command and the digest of the sources.
 * @throws an error with `code` ENOENT if the tool is not installed
 */
export async function render(rendering: Rendering): Promise<string> {
  const [tool, ...args] = rendering.command;
  const { stdout } = await run(tool, args, { cwd: deploy, maxBuffer: 16_777_216 });
  const head = [
    `# Made by npm run deploy:render: ${rendering.command.join(' ')}`,
    `# of sources with sha256 ${digestOf(rendering)}`,
  ];
  return `${head.join('\n')}\n${stdout}`;
}

/** Writes all renderings for `npm run deploy:render`. kubectl and helm must be on the PATH. */
async function main(): Promise<void> {
  mkdirSync(path.join(deploy, 'rendered'), { recursive: true });
  for (const rendering of renderings) {
    writeFileSync(path.join(deploy, rendering.file), await render(rendering));
    process.stdout.write(`deploy/${rendering.file}\n`);
  }
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) await main();
