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
  test('is the database of DATABASE_URL', async () => {
    const { url } = await createDatabase();
    expect(await penstockOn(url).json('workspaces list')).toEqual({ workspaces: [], next: null });
  });

  test('is the embedded database in DATA_DIR if DATABASE_URL is not set', async () => {
    const { url } = await createDatabaseOfOne();
    const folder = temporaryFolder();
    writeFileSync(path.join(folder, 'database-url'), `${url}\n`);
    const { code, stdout } = await penstock(['workspaces', 'list', '--json'], { DATA_DIR: folder });
    expect({ code, ...JSON.parse(stdout) }).toEqual({ code: 0, workspaces: [], next: null });
  });

  test('names the folder, npm start and DATABASE_URL if DATA_DIR has no installation', async () => {
    const folder = temporaryFolder();
    const outcome = await penstock(['workspaces', 'list'], { DATA_DIR: folder });
    expectRefusal(outcome, `no Penstock is running on ${folder}`, 'npm start', 'DATABASE_URL');
  });

  test('names the folder, not the password, if the installation in DATA_DIR has stopped', async () => {
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
    'an impostor on its port that %s receives no password and no statement',
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

  test('reports the reason but not the password if DATABASE_URL is unreachable', async () => {
    const outcome = await penstockOn(`postgresql://p:secret@127.0.0.1:${await leasePort()}/penstock`).run(
      'usage',
    );
    expectRefusal(outcome, 'the database of DATABASE_URL cannot be reached', 'ECONNREFUSED');
    expect(outcome.stderr).not.toContain('secret');
  });

  test('names penstock migrate if the database has no tables', async () => {
    const { url } = await createBareDatabase();
    expectRefusal(await penstockOn(url).run('keys list'), 'penstock migrate');
  });

  test('rejects an invalid setting and names it', async () => {
    expectRefusal(await penstock(['keys', 'list'], { PORT: 'eighty' }), 'PORT');
  });
});
