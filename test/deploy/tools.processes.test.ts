import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { packageRoot } from '../../src/platform/files.ts';
import { render } from '../../tools/deploy/render.ts';
import { renderings } from '../../tools/deploy/renderings.ts';

const run = promisify(execFile);
const objectsOf = (text: string) => parseAllDocuments(text).map((document) => document.toJS());

/**
 * Returns the output of a tool. If it is not installed, prints a line and returns undefined: the result is
 * not checked here.
 */
async function tried(tool: string, made: Promise<string>): Promise<string | undefined> {
  return made.catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error;
    process.stdout.write(`${tool} is not installed: what it makes of deploy/ was not compared\n`);
    return undefined;
  });
}

test.each(renderings)(
  'deploy/$file equals the output of $command.0, if it is installed',
  async (rendering) => {
    const now = await tried(rendering.command[0], render(rendering));
    if (now === undefined) return;
    // Another release of the tool may put the same in another order.
    const committed = readFileSync(path.join(packageRoot, 'deploy', rendering.file), 'utf8');
    expect(objectsOf(now)).toEqual(objectsOf(committed));
  },
);

test('systemd-analyze accepts every line of the units, if it is installed', async () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'penstock-units-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const source = path.join(packageRoot, 'deploy/systemd');
  const files = readdirSync(source).map((file) => {
    const copy = path.join(folder, file.replace('@.', '@1.'));
    // systemd-analyze looks for the program of each unit.
    const text = readFileSync(path.join(source, file), 'utf8').replace('/usr/bin/node', process.execPath);
    writeFileSync(copy, text);
    return copy;
  });
  const verified = run('systemd-analyze', ['verify', '--man=no', ...files]).then(({ stderr }) => stderr);
  const verification = await tried('systemd-analyze', verified);
  // systemd-analyze may also report other units of this machine.
  expect((verification ?? '').split('\n').filter((line) => line.includes('penstock'))).toEqual([]);
});
