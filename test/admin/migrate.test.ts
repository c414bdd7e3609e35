import { readdirSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/platform/files.ts';
import { createBareDatabase } from '../setup/fixtures.ts';
import { penstockOn } from './penstock.ts';

test('migrate creates the tables and lists the migrations; a repetition applies none', async () => {
  const { url } = await createBareDatabase();
  const { run, json } = penstockOn(url);
  const migrations = readdirSync(path.join(packageRoot, 'prisma/migrations'), { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name)
    .sort();
  expect(await json('migrate')).toEqual({ applied: migrations });
  expect(await json('migrate')).toEqual({ applied: [] });
  expect(await run('migrate')).toEqual({ code: 0, stdout: 'the tables are up to date\n', stderr: '' });
  expect(await json('workspaces list')).toEqual({ workspaces: [], next: null });
});
