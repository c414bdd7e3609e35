import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { send } from '../setup/api.ts';
import { temporaryFolder } from '../setup/fixtures.ts';
import { begin, endStarted, KEY, output, runningOn, settings, startAndWait } from '../setup/npm-start.ts';
import { countSets, drained, OBJECTS, once, sendSet } from './counted.ts';
import { follow } from './documented.ts';

let key: string;
let applied: number;
let copy: Awaited<ReturnType<typeof settings>>;

/** The commands of docs/backup-embedded.md. */
beforeAll(async () => {
  const original = await settings();
  const start = await startAndWait(original);
  key = KEY.exec(output(start))![0];
  await sendSet(original.PORT, key, 'applied');
  await drained(original.PORT);

  // From here on no object is applied: the worker is frozen, and killed after the shutdown timeout.
  const worker = runningOn(original.DATA_DIR).find(({ command }) => command.includes('workers/worker.js'))!;
  process.kill(worker.pid, 'SIGSTOP');
  await sendSet(original.PORT, key, 'waiting');
  start.kill('SIGTERM');
  expect((await start.exit).code).toBe(0);

  const folder = temporaryFolder('penstock-backup-');
  const BACKUP = path.join(folder, 'kept');
  follow('keep the folder', { DATA_DIR: original.DATA_DIR, BACKUP });
  copy = { ...(await settings()), DATA_DIR: path.join(temporaryFolder('penstock-elsewhere-'), 'data') };
  follow('bring the folder back', { DATA_DIR: copy.DATA_DIR, BACKUP });
  // The original continues, as it would on the machine that was copied.
  begin(original);
  const restored = await startAndWait(copy);
  // The restored installation keeps its key.
  expect(output(restored)).not.toMatch(KEY);
  applied = await drained(copy.PORT);
});
afterAll(() => endStarted());

test('G1, G2: a copy of DATA_DIR has every accepted object once, including unapplied ones', async () => {
  expect(applied).toBe(2 * OBJECTS);
  const url = readFileSync(path.join(copy.DATA_DIR, 'database-url'), 'utf8').trim();
  expect(await countSets(url)).toEqual({ applied: once, waiting: once });
});

test('G6: a copy of DATA_DIR accepts the same key, on ports of its own', async () => {
  const { body } = await send(Number(copy.PORT), {
    path: '/users/export/ids',
    key,
    json: { external_ids: ['waiting-7'] },
  });
  expect(body.users).toMatchObject([{ external_id: 'waiting-7', home_city: 'waiting' }]);
});
