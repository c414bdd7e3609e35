import { randomBytes } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { readArchived } from '../../src/retention/files.ts';
import { eraseDeleted } from '../../src/retention/restore.ts';
import { runRetention } from '../../src/retention/run.ts';
import type { ActivityTable } from '../../src/store/erasures.ts';
import { remove } from '../identity/objects.ts';
import { temporaryFolder } from '../setup/left-behind.ts';
import * as at from './scene.ts';
import { begin, end, fill, inFolder, nextMonth, withStore } from './scene.ts';

beforeAll(begin);
afterAll(end);
beforeEach(nextMonth);

test("the archive is free of a deleted user's data after deleted users are erased from it", async () => {
  const marker = `planted${randomBytes(6).toString('hex')}`;
  const folder = temporaryFolder('penstock-archive-');
  const store = await inFolder(folder);
  await fill(3);
  await fill(3, { owner: 'bob', from: 100 });
  const bob = await at.scene.profileId('bob');
  await at.pool.query(
    `update events set properties = jsonb_build_object('note', $1::text) where profile_id = $2`,
    [marker, bob],
  );
  await runRetention(withStore(store), 'archive');

  /** Returns the rows of every file of the archive on disk. */
  async function archived(): Promise<string> {
    const { rows } = await at.pool.query<{
      object: string;
      kind: ActivityTable;
      sha256: string;
      rows: number;
    }>('select object, kind, sha256, rows::integer from archive_files');
    const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((file) =>
      file.isFile(),
    );
    expect(files).toHaveLength(rows.length);
    let text = '';
    for (const file of rows)
      for await (const page of readArchived(withStore(store), file)) text += JSON.stringify(page);
    return text;
  }

  expect(await archived()).toContain(marker);
  await at.scene.apply([remove('bob')]);
  await at.scene.cleanUp();
  await eraseDeleted(withStore(store), { days: 0 });
  const left = await archived();
  expect(left).not.toContain(marker);
  expect(left).not.toContain(bob);
  expect(left).toContain(await at.scene.profileId('ada'));
});
