import { statSync } from 'node:fs';
import { deflateRawSync, gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { openInput } from '../../src/import/open-input.ts';
import type { Step } from '../../src/platform/steps.ts';
import { avroOf } from './avro-file.ts';
import { parquetOf } from './parquet-file.ts';
import { fileOf, zipOf } from './scene.ts';

/** Opens a file. @returns its reported steps, each with the number of its progress reports */
async function stepsOf(file: string) {
  const steps: (Step & { moves: number; moved: number; isOver: boolean })[] = [];
  const opened = openInput(file, {
    scratchBytes: 100_000_000,
    watcher: {
      begin: (step) => void steps.push({ ...step, moves: 0, moved: 0, isOver: false }),
      move(more) {
        steps.at(-1)!.moves += 1;
        steps.at(-1)!.moved += more;
      },
      end() {
        steps.at(-1)!.isOver = true;
      },
    },
  });
  await (await opened.catch(() => undefined))?.close();
  return steps;
}

const text = `external_id,first_name\n${'somebody,Somebody\n'.repeat(300_000)}`;
const PACKED = deflateRawSync(text).length;
const rows = Array.from({ length: 20_000 }, (_, number) => ({ id: `user ${number}` }));

test.each<[string, () => Promise<string>, { of: Step['of']; total: (size: number) => number }[]]>([
  ['text', async () => fileOf('a.csv', text), [{ of: 'bytes', total: (size) => size }]],
  ['gzip', async () => fileOf('a.csv.gz', gzipSync(text)), [{ of: 'bytes', total: (size) => size }]],
  [
    'zip',
    async () => fileOf('a.zip', zipOf([{ name: 'a.csv', content: text }])),
    // The archive and the file in it.
    [{ of: 'bytes', total: (size) => size + PACKED }],
  ],
  [
    'Avro',
    () => avroOf({ type: 'record', name: 'row', fields: [{ name: 'id', type: 'string' }] }, rows),
    [
      { of: 'bytes', total: (size) => size },
      { of: 'bytes', total: (size) => size },
    ],
  ],
  [
    'Parquet',
    () => parquetOf("select 'user ' || n as external_id from range(20000) as numbers (n)"),
    [
      { of: 'bytes', total: (size) => size },
      { of: 'rows', total: () => 20_000 },
    ],
  ],
])('each step of checking a file of %s is reported from start to end', async (_, make, wanted) => {
  const file = await make();
  const { size } = statSync(file);
  const steps = await stepsOf(file);
  expect(steps).toMatchObject(
    wanted.map(({ of, total }) => ({
      name: file,
      doing: 'checking',
      of,
      total: total(size),
      isOver: true,
    })),
  );
  for (const { moved, total } of steps) {
    expect(moved).toBeLessThanOrEqual(total);
    // The header of an Avro file is read separately.
    expect(moved).toBeGreaterThan(total * 0.9);
  }
});

test('a step that fails is reported as ended', async () => {
  const broken = gzipSync(text);
  broken.fill(0, Math.floor(broken.length / 2));
  expect(await stepsOf(fileOf('broken.csv.gz', broken))).toMatchObject([{ doing: 'checking', isOver: true }]);
});
