import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/platform/files.ts';
import { sources } from '../setup/sources.ts';
import { onPg, reasons } from './on-pg.ts';
import { sitesOfStore, usersOf } from './plans/sources.ts';

/** Files that worker and sync load, at their start or later. */
const loadedByWorkers = new Set(['workers/worker.ts', 'workers/sync.ts']);
const byFile = new Map(sources.map((source) => [source.file, source]));
for (const file of loadedByWorkers) {
  const { loads = [], opens = [] } = byFile.get(file) ?? {};
  for (const next of [...loads, ...opens]) loadedByWorkers.add(next);
}

test('only listed statements outside of worker and sync use pg instead of the client', () => {
  const outside = sitesOfStore().filter(
    (site) => ![...usersOf(site)].some((file) => loadedByWorkers.has(file)),
  );
  const listed = Object.entries(onPg).flatMap(([file, functions]) =>
    Object.keys(functions).map((name) => `${file} ${name}`),
  );
  expect(outside.sort()).toEqual(listed.sort());
});

test('the record of the structure lists the same functions with their reasons', () => {
  const record = readFileSync(path.join(packageRoot, 'docs/evidence/structure.md'), 'utf8');
  const rows = record.split('\n').filter((line) => /^\| `[\w-]+\.ts` \|/.test(line));
  const lines = Object.entries(onPg).map(([file, functions]) => {
    const why = [...new Set(Object.values(functions))].map((reason) => reasons[reason]);
    return `| \`${file}\` | ${Object.keys(functions).join(', ')} | ${why.join('; ')} |`;
  });
  expect(rows).toEqual(lines);
});
