import { readdirSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/platform/package-root.ts';
import { createBareDatabase, startRedis } from '../setup/fixtures.ts';
import { fromFolder } from './integrations-scene.ts';
import { expectRefusal, makeWorkspaces, penstockOn } from './penstock.ts';
import { spawnPenstock } from './spawn-penstock.ts';

/** The migrations, by name. */
const migrations = readdirSync(path.join(packageRoot, 'prisma/migrations'), { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map((entry) => entry.name)
  .sort();

// The other tests of the command run it inside their own process. Here it is what a script calls: a process that
// prints, ends by itself whatever it had open, and says by its code how it went.

test('the command as a process prints, ends by itself, and tells by its code how it went', async () => {
  const { url } = await createBareDatabase();
  const { url: REDIS_URL } = await startRedis();
  const { run, json } = penstockOn(url, { REDIS_URL }, spawnPenstock);
  expect(await json('migrate')).toEqual({ applied: migrations });
  await makeWorkspaces(url, 'shop');
  // With Prisma, DuckDB and the queue.
  expect(await json('keys create --workspace shop --permissions all')).toMatchObject({ workspace: 'shop' });
  expect(await json(fromFolder('users'))).toMatchObject({ status: 'active' });
  expect(await json('dead-letters replay --all')).toMatchObject({ enqueued: 0 });
  expect(await run('keys list')).toMatchObject({ code: 0, stderr: '' });
  expectRefusal(await run('keys list --workspace moon'), "'moon'");
  expectRefusal(await run('keyz'), "unknown command 'keyz'", 'keys');
});

test('--help and --version need no database and end with 0; a noun without a verb ends with 1', async () => {
  expect(await spawnPenstock(['--help'])).toMatchObject({ code: 0, stderr: '' });
  expect(await spawnPenstock(['--version'])).toMatchObject({ code: 0, stderr: '' });
  expect(await spawnPenstock(['keys'])).toMatchObject({ code: 1, stdout: '' });
});
