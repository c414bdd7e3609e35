import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import {
  createBareDatabase,
  createDatabase,
  createDatabaseOfOne,
  temporaryFolder,
} from '../setup/fixtures.ts';
import { startImpostor, tricks } from '../setup/impostor.ts';
import { leasePort } from '../setup/ports.ts';
import { expectRefusal, penstock, penstockOn } from './penstock.ts';

describe('the database that a command works on', () => {
  test('is that of DATABASE_URL', async () => {
    const { url } = await createDatabase();
    expect(await penstockOn(url).json('workspaces list')).toEqual({ workspaces: [], next: null });
  });

  test('is that of the embedded installation on DATA_DIR when DATABASE_URL is not set', async () => {
    const { url } = await createDatabaseOfOne();
    const folder = temporaryFolder();
    writeFileSync(path.join(folder, 'database-url'), `${url}\n`);
    const { code, stdout } = await penstock(['workspaces', 'list', '--json'], { DATA_DIR: folder });
    expect({ code, ...JSON.parse(stdout) }).toEqual({ code: 0, workspaces: [], next: null });
  });

  test('when nothing was ever started on DATA_DIR, the folder and the two ways out are named', async () => {
    const folder = temporaryFolder();
    const outcome = await penstock(['workspaces', 'list'], { DATA_DIR: folder });
    expectRefusal(outcome, `no Penstock is running on ${folder}`, 'npm start', 'DATABASE_URL');
  });

  test('when the installation on DATA_DIR has ended, it says the same', async () => {
    const folder = temporaryFolder();
    writeFileSync(
      path.join(folder, 'database-url'),
      `postgresql://p:secret@127.0.0.1:${await leasePort()}/penstock`,
    );
    const outcome = await penstock(['workspaces', 'list'], { DATA_DIR: folder });
    expectRefusal(outcome, `no Penstock is running on ${folder}`);
    expect(outcome.stderr).not.toContain('secret');
  });

  test.each(Object.entries(tricks))(
    'when it has ended and who listens in its place %s, that one is told neither the password nor a statement',
    async (_, answers) => {
      const folder = temporaryFolder();
      const { port, heard } = await startImpostor(answers);
      const url = `postgresql://penstock:kept-secret@127.0.0.1:${port}/penstock`;
      writeFileSync(path.join(folder, 'database-url'), `${url}\n`);
      const outcome = await penstock(['keys', 'list'], { DATA_DIR: folder });
      expectRefusal(outcome);
      expect(heard()).toContain('user\0penstock');
      for (const kept of ['kept-secret', 'md5', 'select']) expect(heard()).not.toContain(kept);
    },
  );

  test('when DATABASE_URL does not answer, the reason is told and the password is not', async () => {
    const outcome = await penstockOn(`postgresql://p:secret@127.0.0.1:${await leasePort()}/penstock`).run(
      'usage',
    );
    expectRefusal(outcome, 'the database of DATABASE_URL cannot be reached', 'ECONNREFUSED');
    expect(outcome.stderr).not.toContain('secret');
  });

  test('when it has no tables yet, penstock migrate is named', async () => {
    const { url } = await createBareDatabase();
    expectRefusal(await penstockOn(url).run('keys list'), 'penstock migrate');
  });

  test('a wrong setting is refused by name', async () => {
    expectRefusal(await penstock(['keys', 'list'], { PORT: 'eighty' }), 'PORT');
  });
});
