import { execFileSync } from 'node:child_process';
import { chmodSync, cpSync, existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { readEmbeddedUrl, type Transport } from '../../src/embedded/address.ts';
import { DataDirInUse } from '../../src/embedded/data-dir.ts';
import {
  type EmbeddedOptions,
  type EmbeddedPostgres,
  hasEmbeddedPostgres,
  startEmbeddedPostgres,
} from '../../src/embedded/postgres.ts';
import { findBinaries } from '../../src/embedded/server.ts';
import { createLog } from '../../src/platform/log.ts';
import { PostgresClient } from '../../src/store/postgres-client.ts';
import { temporaryFolder, useMadeCluster, waitUntil } from '../setup/fixtures.ts';

const log = createLog('test', 'silent');

const transports: Transport[] = ['socket', 'port'];

test.each(transports)('a second start has the data of the first, on the same %s', async (transport) => {
  const home = temporaryFolder();
  const first = await startNew(home, { transport });
  await query(first.url, 'create table kept (word text)');
  await query(first.url, "insert into kept values ('once')");
  await first.stop();

  const second = await start(home, { transport });
  expect(second.url).toBe(first.url);
  expect(second.recovered).toBe(false);
  expect(await query(second.url, 'select word from kept')).toEqual([{ word: 'once' }]);
});

const requested = `
  select name, setting from pg_settings
  where name in ('listen_addresses', 'unix_socket_directories', 'synchronous_commit', 'fsync', 'full_page_writes',
    'data_checksums')`;
const onDisk = { synchronous_commit: 'on', fsync: 'on', full_page_writes: 'on', data_checksums: 'on' };

async function settingsOf(url: string) {
  return Object.fromEntries((await query(url, requested)).map(({ name, setting }) => [name, setting]));
}

async function expectPassword(url: string): Promise<void> {
  const guess = new URL(url);
  guess.password = 'guess';
  await expect(query(guess.href, 'select')).rejects.toThrow('password authentication failed');
}

test('it listens on a private socket and no port, requires a password, and syncs commits', async () => {
  const home = temporaryFolder();
  const { url } = await start(home);
  const folder = path.join(home, 'socket');
  expect(statSync(folder).mode & 0o777).toBe(0o700);
  expect(statSync(path.join(folder, '.s.PGSQL.5432')).mode & 0o077).toBe(0);
  expect(await settingsOf(url)).toEqual({
    listen_addresses: '',
    unix_socket_directories: `"${folder}"`,
    ...onDisk,
  });
  await expectPassword(url);
});

test('it listens on loopback with SCRAM if the path of the socket would be too long', async () => {
  const home = path.join(temporaryFolder(), 'deep'.repeat(20));
  const { url } = await start(home);
  expect(new URL(url).hostname).toBe('127.0.0.1');
  expect(new URL(url).searchParams.get('require_auth')).toBe('scram-sha-256');
  expect(readEmbeddedUrl(home)).toBe(url);
  expect(await settingsOf(url)).toEqual({
    listen_addresses: '127.0.0.1',
    unix_socket_directories: '',
    ...onDisk,
  });
  await expectPassword(url);
});

test('a folder may have quotes, commas, spaces and letters of any script in its name', async () => {
  const home = path.join(temporaryFolder(), `a "b", 'c' %2F ü`);
  const { url } = await startNew(home);
  expect(readEmbeddedUrl(home)).toBe(url);
  expect(await query(url, 'select 1 as one')).toEqual([{ one: 1 }]);
});

test('the address in a copy of the folder does not lead to the original', async () => {
  const home = temporaryFolder();
  await start(home);
  const copy = temporaryFolder();
  cpSync(path.join(home, 'database-url'), path.join(copy, 'database-url'));
  await expect(query(readEmbeddedUrl(copy)!, 'select')).rejects.toThrow('ENOENT');
});

test('an address without require_auth requires the listener to authenticate itself', () => {
  const home = temporaryFolder();
  const left = 'postgresql://penstock:secret@127.0.0.1:40123/penstock';
  writeFileSync(path.join(home, 'database-url'), `${left}\n`);
  expect(readEmbeddedUrl(home)).toBe(`${left}?require_auth=scram-sha-256`);
});

test('only the owner can read the password and the address', async () => {
  const home = temporaryFolder();
  const { url } = await startNew(home);
  expect(readEmbeddedUrl(home)).toBe(url);
  for (const file of ['password', 'database-url', 'postgres.log']) {
    expect(statSync(path.join(home, file)).mode & 0o077, file).toBe(0);
  }
});

test('a folder without an installation has no address', () => {
  expect(readEmbeddedUrl(temporaryFolder())).toBeUndefined();
});

test('a crashed server restarts with its committed data', async () => {
  const home = temporaryFolder();
  const first = await start(home);
  await query(first.url, 'create table kept (word text)');
  await query(first.url, "insert into kept values ('once')");
  process.kill(postmaster(home), 'SIGKILL');
  await first.exited;
  await first.stop();

  const second = await start(home);
  expect(await query(second.url, 'select word from kept')).toEqual([{ word: 'once' }]);
});

test.each(transports)('a crashed server is restarted at the same address (%s)', async (transport) => {
  const home = temporaryFolder();
  const postgres = await start(home, { transport });
  await query(postgres.url, 'create table kept (word text)');
  process.kill(postmaster(home), 'SIGKILL');
  // The first attempt may find the remains of the previous server.
  await waitUntil(() => postgres.startAgain().then(() => true), { what: 'a new server' });
  expect(await query(postgres.url, 'select word from kept')).toEqual([]);
});

test('a lock file whose process id now belongs to another program does not block the next start', async () => {
  const home = temporaryFolder();
  const first = await start(home);
  const pidFile = path.join(home, 'postgres/postmaster.pid');
  const lines = readFileSync(pidFile, 'utf8').split('\n');
  await first.stop();
  expect(existsSync(pidFile)).toBe(false);

  writeFileSync(pidFile, [process.pid, ...lines.slice(1)].join('\n'));
  const second = await start(home);
  expect(await query(second.url, 'select 1 as one')).toEqual([{ one: 1 }]);
});

test('a start that was killed while it created the cluster does not block the next one', async () => {
  const home = temporaryFolder();
  writeFileSync(path.join(home, 'postgres.unfinished'), 'half of a cluster');
  const { url } = await startNew(home);
  expect(await query(url, 'select 1 as one')).toEqual([{ one: 1 }]);
});

test('the data directory has one owner at a time', async () => {
  const home = temporaryFolder();
  const first = await start(home);
  await expect(start(home)).rejects.toThrow(
    new DataDirInUse(
      `another npm start (process ${process.pid}) is running on ${home}; stop it, or set DATA_DIR to another folder`,
    ),
  );
  await first.stop();
  await (await start(home)).stop();
});

test('root can start it in a private folder', async () => {
  const home = temporaryFolder();
  chmodSync(home, 0o700);
  const inside = path.join(home, 'closed', 'data');
  const { url } = await startNew(inside);
  expect(await query(url, 'select 1 as one')).toEqual([{ one: 1 }]);
  expect(statSync(home).mode & 0o777).toBe(0o700);
});

test('a server that does not start reports the reason', async () => {
  const home = temporaryFolder();
  await (await start(home)).stop();
  const version = path.join(home, 'postgres/PG_VERSION');
  writeFileSync(version, '9.6\n');
  await expect(start(home)).rejects.toThrow('database files are incompatible with server');
  await waitUntil(() => !existsSync(path.join(home, 'lock.sock')), { what: 'the lock to be let go' });
});

test.for([
  ['a copy of its folder', (home: string, other: string) => execFileSync('cp', ['-a', home, other])],
  ['another installation', () => {}],
] as const)('a port that %s takes at the last moment is replaced by another one', async ([, make]) => {
  const home = temporaryFolder();
  const other = path.join(temporaryFolder(), 'other');
  const transport = 'port';
  const first = await start(home, { transport });
  await first.stop();
  make(home, other);
  await (await startNew(other, { transport })).stop();
  cpSync(path.join(home, 'database-url'), path.join(other, 'database-url'));

  const { binaries, request, go } = await patientBinaries();
  const starting = start(home, { transport, binaries });
  await waitUntil(() => existsSync(request), { what: 'the program to be called' });
  const faster = await start(other, { transport });
  expect(faster.url.split('@')[1]).toBe(first.url.split('@')[1]);
  writeFileSync(go, '');

  const { url } = await starting;
  expect(new URL(url).port).not.toBe(new URL(faster.url).port);
  const [own] = await query(url, 'show data_directory');
  expect(own).toEqual({ data_directory: path.join(home, 'postgres') });
});

/** Returns binaries whose server creates `asked` and then waits for `go`. */
async function patientBinaries() {
  const folder = temporaryFolder();
  chmodSync(folder, 0o777);
  const [postgres, request, go] = ['postgres', 'asked', 'go'].map((name) => path.join(folder, name)) as [
    string,
    string,
    string,
  ];
  const real = await findBinaries();
  const script = `touch ${request}; while [ ! -e ${go} ]; do sleep 0.05; done; exec ${real.postgres} "$@"`;
  writeFileSync(postgres, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  return { binaries: { ...real, postgres }, request, go };
}

/** Starts Postgres on a copy of a finished cluster. */
async function start(home: string, options: EmbeddedOptions = {}): Promise<EmbeddedPostgres> {
  if (!hasEmbeddedPostgres(home)) useMadeCluster(home);
  return startNew(home, options);
}

/** Starts Postgres in the folder, and creates the cluster if it is missing. */
async function startNew(home: string, options: EmbeddedOptions = {}): Promise<EmbeddedPostgres> {
  const postgres = await startEmbeddedPostgres(home, log, options);
  onTestFinished(() => postgres.stop());
  return postgres;
}

function postmaster(home: string): number {
  return Number(readFileSync(path.join(home, 'postgres/postmaster.pid'), 'utf8').split('\n')[0]);
}

async function query(url: string, statement: string) {
  const client = new PostgresClient({ connectionString: url });
  await client.connect();
  const { rows } = await client.query(statement).finally(() => client.end());
  return rows;
}
