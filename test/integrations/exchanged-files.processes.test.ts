import { execFileSync } from 'node:child_process';
import {
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { copyFiles, openInside } from '../../src/integrations/files/input.ts';
import { createScratch } from '../../src/integrations/files/scratch.ts';
import type { FileFormat, SourceRow } from '../../src/integrations/source.ts';
import { temporaryFolder } from '../setup/fixtures.ts';
import { open, readAll, runOnDuckDb, type Stocked } from './warehouses.ts';

const AT = '2026-01-01T00:00:00Z';

async function fileOf(
  format: FileFormat | 'csv.gz' | 'ndjson.gz',
  id: string,
  padding = 0,
): Promise<{ folder: string; file: string; stocked: Stocked }> {
  const folder = realpathSync(temporaryFolder('penstock-exchanged-'));
  const file = path.join(folder, `rows.${format}`);
  const payload = 'x'.repeat(1000);
  if (format === 'parquet') {
    await runOnDuckDb(
      `copy (select '${id}' as external_id, timestamp '2026-01-01' as updated_at, '{}' as payload) to '${file}' (format parquet)`,
    );
  } else if (format.startsWith('csv')) {
    const text = `EXTERNAL_ID,UPDATED_AT,PAYLOAD\n${`${id},${AT},${payload}\n`.repeat(1 + padding)}`;
    writeFileSync(file, format.endsWith('.gz') ? gzipSync(text) : text);
  } else {
    const text = `${JSON.stringify({ external_id: id, updated_at: AT, payload })}\n`.repeat(1 + padding);
    writeFileSync(file, format.endsWith('.gz') ? gzipSync(text) : text);
  }
  const definition = { type: 'folder', path: folder, format: format.split('.')[0] as FileFormat } as const;
  return { folder, file, stocked: { definition } };
}

const idsOf = (rows: SourceRow[]) => [...new Set(rows.map(({ identifiers }) => identifiers.external_id))];

test.each([
  ['csv', 20_000],
  ['csv', 0],
  ['csv.gz', 20_000],
  ['ndjson', 0],
  ['ndjson.gz', 0],
  ['parquet', 0],
] as const)(
  'a %s file (%i rows more) replaced by a link after it was opened is read unchanged',
  async (format, padding) => {
    const secret = await fileOf(format, 'secret', padding);
    const { file, stocked } = await fileOf(format, 'mine', padding);
    const source = await open(stocked);
    await source.describe();
    renameSync(file, `${file}.away`);
    symlinkSync(secret.file, file);
    const rows: SourceRow[] = [];
    const { signal } = new AbortController();
    for await (const some of source.rowsSince(undefined, { batch: 1000, signal })) rows.push(...some);
    await source.close();
    expect(idsOf(rows)).toEqual(['mine']);
  },
);

test('a file that becomes a link between check and opening is not read', async () => {
  const secret = await fileOf('csv', 'secret');
  const { folder: root, file } = await fileOf('csv', 'mine');
  const owner = statSync(root).uid;
  renameSync(file, `${file}.away`);
  symlinkSync(secret.file, file);
  const exchanged = {
    reason: 'failed',
    message: expect.stringMatching(/rows\.csv was replaced while it was being opened/),
  };
  await expect(openInside({ root, owner, target: file, name: file })).rejects.toMatchObject(exchanged);
  // The same for a folder that becomes a link, which the last part of the path does not show.
  symlinkSync(secret.folder, path.join(root, 'sub'));
  const target = path.join(root, 'sub', 'rows.csv');
  await expect(openInside({ root, owner, target, name: target })).rejects.toMatchObject(exchanged);
});

test('files outside are never read while files and folders are replaced by links', async () => {
  const secret = await fileOf('csv', 'secret');
  const { folder, stocked } = await fileOf('csv', 'mine');
  mkdirSync(path.join(folder, 'sub'));
  writeFileSync(path.join(folder, 'sub', 'rows.csv'), `EXTERNAL_ID,UPDATED_AT,PAYLOAD\nmine,${AT},{}\n`);
  const script = `
    const { renameSync, symlinkSync, rmSync } = require('node:fs');
    const [folder, file, outside] = process.argv.slice(1);
    for (;;) {
      for (const [path, target] of [[folder + '/rows.csv', file], [folder + '/sub', outside]]) {
        renameSync(path, path + '.away'); symlinkSync(target, path);
        rmSync(path); renameSync(path + '.away', path);
      }
    }`;
  const { spawn } = await import('node:child_process');
  const swapping = spawn(process.execPath, ['-e', script, folder, secret.file, secret.folder]);
  try {
    const seen = new Set<string | undefined>();
    for (let attempt = 0; attempt < 300; attempt += 1) {
      const scratch = await createScratch(1_000_000);
      // A race may be lost in several ways, and each of them must read only files inside.
      const copies = await copyFiles(stocked.definition as never, scratch).catch(() => []);
      for (const copy of copies) seen.add(readFileSync(copy.path, 'utf8').split('\n')[1]?.split(',')[0]);
      await scratch.remove();
    }
    expect([...seen].filter((id) => id === 'secret')).toEqual([]);
    expect(seen).toContain('mine');
  } finally {
    swapping.kill('SIGKILL');
  }
});

test('FIFOs, devices and folders named .csv are skipped, and rejected when named directly', async () => {
  const { folder, stocked } = await fileOf('csv', 'mine');
  const fifo = path.join(folder, 'fifo.csv');
  execFileSync('mkfifo', [fifo]);
  mkdirSync(path.join(folder, 'folder.csv'));
  symlinkSync('/dev/zero', path.join(folder, 'zero.csv'));
  expect(idsOf(await readAll(stocked))).toEqual(['mine']);
  await expect(open({ definition: { type: 'folder', path: fifo, format: 'csv' } })).rejects.toMatchObject({
    reason: 'config',
    message: expect.stringMatching(/neither a file nor a folder/),
  });
  const owner = statSync(folder).uid;
  await expect(openInside({ root: folder, owner, target: fifo, name: fifo })).rejects.toMatchObject({
    reason: 'failed',
  });
});

test('a named file may be a link within its folder, but not a link out of it', async () => {
  const secret = await fileOf('csv', 'secret');
  const { folder, file } = await fileOf('csv', 'mine');
  symlinkSync(file, path.join(folder, 'latest'));
  const latest = path.join(folder, 'latest');
  expect(idsOf(await readAll({ definition: { type: 'folder', path: latest, format: 'csv' } }))).toEqual([
    'mine',
  ]);
  symlinkSync(secret.file, path.join(folder, 'out'));
  await expect(
    open({ definition: { type: 'folder', path: path.join(folder, 'out'), format: 'csv' } }),
  ).rejects.toMatchObject({ reason: 'config', message: expect.stringMatching(/outside of its folder/) });
});

test("a hard link to a file whose owner differs from the folder's is rejected", async () => {
  const { folder: root, file } = await fileOf('csv', 'mine');
  const { uid } = statSync(root);
  const again = path.join(root, 'again.csv');
  linkSync(file, again);
  const opened = await openInside({ root, owner: uid, target: again, name: again });
  await opened.handle.close();
  await expect(openInside({ root, owner: uid + 1, target: again, name: again })).rejects.toMatchObject({
    reason: 'config',
    message: expect.stringMatching(/again\.csv was skipped: it has 2 hard links/),
  });
});

test('a file that shrinks while it is copied fails with that reason', async () => {
  const { file, stocked } = await fileOf('csv', 'mine', 2000);
  const scratch = await createScratch(100_000_000);
  const shrinking = {
    ...scratch,
    async take(bytes: number, name: string) {
      truncateSync(file, 10);
      await scratch.take(bytes, name);
    },
  };
  await expect(copyFiles(stocked.definition as never, shrinking)).rejects.toMatchObject({
    reason: 'failed',
    message: expect.stringMatching(/changed while it was being read/),
  });
  await scratch.remove();
});

test.each(['csv', 'ndjson'] as const)(
  'a small %s.gz that unpacks to a gigabyte fails at SYNC_SCRATCH_BYTES and is cleaned up',
  async (format) => {
    const folder = temporaryFolder('penstock-bomb-');
    const megabytes = Buffer.alloc(64 * 1_048_576, '\n');
    const packed = gzipSync(megabytes);
    const file = path.join(folder, `bomb.${format}.gz`);
    // Concatenated gzip members are one file: 1 GiB in 1 MB.
    writeFileSync(file, Buffer.concat(Array.from({ length: 16 }, () => packed)));
    expect(statSync(file).size).toBeLessThan(2_000_000);
    const spaceBytes = 20_000_000;
    const tmp = path.dirname(temporaryFolder('penstock-tmp-'));
    const before = scratches(tmp);
    await expect(
      open({ definition: { type: 'folder', path: folder, format } }, 'service_id', spaceBytes),
    ).rejects.toMatchObject({
      name: 'SourceError',
      reason: 'config',
      message: expect.stringMatching(/bomb\..*20000000 bytes of disk that SYNC_SCRATCH_BYTES allows/),
    });
    expect(scratches(tmp)).toEqual(before);
  },
);

test('pieces of a long CSV file count towards the limit, and the free disk space limits it too', async () => {
  const { stocked } = await fileOf('csv', 'mine', 20_000);
  const source = await open(stocked, 'service_id', 30_000_000);
  const { signal } = new AbortController();
  const rows = source.rowsSince(undefined, { batch: 1000, signal })[Symbol.asyncIterator]();
  await expect(rows.next()).rejects.toMatchObject({
    reason: 'config',
    message: expect.stringMatching(/SYNC_SCRATCH_BYTES/),
  });
  await source.close();
  const scratch = await createScratch(Number.MAX_SAFE_INTEGER);
  await expect(scratch.take(1e15, 'rows.csv')).rejects.toMatchObject({
    reason: 'failed',
    message: expect.stringMatching(/rows\.csv: the disk of .* has only \d+ bytes free/),
  });
  await scratch.remove();
});

function scratches(folder: string): string[] {
  return readdirSync(folder).filter(
    (name) => name.startsWith('penstock-rows-') && name.includes(`-${process.pid}-`),
  );
}
