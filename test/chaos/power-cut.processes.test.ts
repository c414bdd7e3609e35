import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/platform/files.ts';
import { followDurable } from '../../tools/chaos/power-cut/durable-folder.ts';
import { powerCuts } from '../../tools/chaos/scenarios/39-power-cuts.ts';
import { temporaryFolder } from '../setup/fixtures.ts';
import { findCompiler } from '../setup/installed.ts';
import { shortForms } from './short-form.ts';

await findCompiler();

shortForms('redis', [powerCuts]);

/** Runs a Node program whose file operations are recorded, and then simulates a power cut. */
function runAndCut(folder: string, script: string): void {
  const { program, cut } = followDurable(folder, process.execPath);
  execFileSync(program, ['--input-type=module', '-e', script], { cwd: folder, stdio: 'pipe' });
  cut();
}

test('a power cut loses writes after the last fsync, and files that were never synced', () => {
  const folder = temporaryFolder();
  runAndCut(
    folder,
    `import fs from 'node:fs';
    const file = fs.openSync('synced', 'w');
    fs.writeSync(file, 'before');
    fs.fsyncSync(file);
    fs.writeSync(file, ' and after');
    fs.writeFileSync('never', 'x');
    fs.writeFileSync('renamed', 'x');
    fs.renameSync('renamed', 'to');`,
  );
  expect(readFileSync(path.join(folder, 'synced'), 'utf8')).toBe('before');
  for (const name of ['never', 'renamed', 'to']) expect(existsSync(path.join(folder, name))).toBe(false);
});

test('G1: acknowledged objects of an archive folder are intact after 20 power cuts', () => {
  const folder = temporaryFolder();
  const store = pathToFileURL(path.join(packageRoot, 'dist/src/object-store/folder-store.js')).href;
  const names = Array.from({ length: 20 }, (_, index) => `2026/0${index % 9}/part-${index}`);
  for (const [index, name] of names.entries()) {
    runAndCut(
      folder,
      `import { openFolderStore } from '${store}';
      const store = openFolderStore('.');
      await store.put('${name}', (async function* () { yield Buffer.alloc(300_000, ${index + 1}); })());`,
    );
    for (const [earlier, its] of names.slice(0, index + 1).entries())
      expect(readFileSync(path.join(folder, its)).equals(Buffer.alloc(300_000, earlier + 1))).toBe(true);
  }
});
