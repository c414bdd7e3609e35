import { mkdirSync, mkdtempSync, readdirSync, rmSync, utimesSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { scratchFolders } from '../../src/platform/files.ts';

test('folders of killed processes in TMPDIR are removed, but not those of others', async () => {
  const scratch = scratchFolders('retention');
  const given = process.env.TMPDIR;
  const folder = mkdtempSync(path.join(tmpdir(), 'penstock-tidy-'));
  process.env.TMPDIR = folder;
  try {
    const own = path.basename(await scratch.make());
    const [space, pid, started] = own.split('-').slice(2);
    const make = (name: string, days = 0) => {
      mkdirSync(path.join(folder, name, '.parquet-x'), { recursive: true });
      const time = Date.now() / 1000 - days * 86_400;
      utimesSync(path.join(folder, name), time, time);
      return name;
    };
    const kept = [
      own,
      make(`penstock-retention-1${space}-${pid}-${started}-abcdef`),
      make('penstock-retention-abcdef', 9),
      path.basename(mkdtempSync(path.join(folder, 'other-'))),
    ];
    make(`penstock-retention-${space}-${pid}-1${started}-abcdef`);
    make(`penstock-retention-${space}-99999999-1-abcdef`);
    make(`penstock-retention-1${space}-${pid}-${started}-ghijkl`, 2);
    await scratch.tidy();
    expect(readdirSync(folder).sort()).toEqual(kept.sort());
  } finally {
    if (given === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = given;
    rmSync(folder, { recursive: true });
  }
});
