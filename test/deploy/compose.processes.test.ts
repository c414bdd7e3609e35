import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { Ajv } from 'ajv';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { readConfig, settings } from '../../src/platform/config.ts';
import { packageRoot } from '../../src/platform/files.ts';
import { parseProcfile } from '../../src/start/processes.ts';
import { startProcess } from '../setup/processes.ts';

interface Service {
  image?: string;
  build?: string;
  command?: string | string[];
  entrypoint?: string[];
  user?: string;
  network_mode?: string;
  restart?: string;
  environment?: Record<string, string | number>;
  env_file?: { path: string; required: boolean }[];
  ports?: string[];
  volumes?: string[];
  healthcheck?: { test?: string[]; disable?: boolean };
  depends_on?: Record<string, { condition: string }>;
  container_name?: string;
}

const run = promisify(execFile);
const read = (file: string) => readFileSync(path.join(packageRoot, file), 'utf8');
const procfile = parseProcfile(read('Procfile'));
/** JSON schema of the Compose specification, as a linter of such files ships it. */
const composeSchema = JSON.parse(read('node_modules/dclint/schemas/compose.schema.json'));
const compose = parse(read('docker-compose.yml'), { merge: true }) as {
  services: Record<string, Service>;
  volumes: Record<string, null>;
};
const { postgres, redis, secrets, release, web, worker, sync, board } = compose.services as Record<
  'postgres' | 'redis' | 'secrets' | 'release' | 'web' | 'worker' | 'sync' | 'board',
  Service
>;
const ours = Object.fromEntries(procfile.map(({ name }) => [name, compose.services[name]!]));

describe('docker-compose.yml', () => {
  test('is valid under the Compose specification', () => {
    const isAllowed = new Ajv({ strict: false, formats: { duration: true } }).compile({
      ...composeSchema,
      $schema: undefined,
    });
    expect(isAllowed(compose), JSON.stringify(isAllowed.errors)).toBe(true);
    expect(isAllowed({ services: { web: { ...web, port: ['3000:3000'] } } })).toBe(false);
  });

  test('runs every line of the Procfile by name and command, with Postgres, Redis and secrets', () => {
    expect(Object.keys(compose.services).sort()).toEqual(
      ['postgres', 'redis', 'secrets', ...procfile.map(({ name }) => name)].sort(),
    );
    for (const { name, nodeArgs, file } of procfile) {
      const command = ['node', ...nodeArgs, file].join(' ');
      expect(ours[name]).toMatchObject({ command, build: '.', image: 'penstock' });
      expect(existsSync(path.join(packageRoot, file)), file).toBe(true);
    }
  });

  test('sets only known settings, each to a valid value', () => {
    for (const service of Object.values(ours)) {
      const environment = Object.entries(service.environment ?? {}).map(([name, value]) => [
        name,
        String(value),
      ]);
      for (const [name] of environment) expect(Object.keys(settings)).toContain(name);
      expect(() => readConfig(Object.fromEntries(environment))).not.toThrow();
      expect(service.env_file).toEqual([{ path: '.env', required: false }]);
    }
  });

  test('reads only variables that docs/configure.md explains', () => {
    const variables = [...read('docker-compose.yml').matchAll(/(?<![$\\])\$\{(\w+)/g)].map(
      ([, name]) => name!,
    );
    expect(variables).toContain('POSTGRES_PASSWORD');
    for (const name of variables) expect(read('docs/configure.md')).toContain(`\`${name}\``);
  });

  test('gives every process the Postgres and the Redis that it starts', () => {
    const { POSTGRES_USER, POSTGRES_PASSWORD, POSTGRES_DB } = postgres.environment!;
    for (const { environment } of Object.values(ours)) {
      expect(environment).toMatchObject({
        DATABASE_URL: `postgresql://${POSTGRES_USER}:${POSTGRES_PASSWORD}@postgres:5432/${POSTGRES_DB}`,
        REDIS_URL: 'redis://redis:6379',
      });
    }
  });

  test('makes Redis sync every write, evict no keys, and have a memory limit', () => {
    expect(redis.command).toBe(
      'redis-server --appendonly yes --appendfsync always --maxmemory-policy noeviction --maxmemory ${REDIS_MAXMEMORY:-1gb}',
    );
  });

  test('creates the board password and the metrics token once, and prefers values of .env', async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'penstock-secrets-'));
    /** Runs the service as Compose does, with another path in place of the volume. */
    const runService = async ({ entrypoint = [], command = [] }: Service, env: Record<string, string>) => {
      const words = [...entrypoint, ...[command].flat()].map((word) =>
        word.replaceAll('$$', '$').replaceAll('/secrets', folder),
      );
      const { PATH } = process.env;
      const { stdout } = await run(words[0]!, words.slice(1), { env: { PATH, ...env } });
      return stdout;
    };
    const shows = ['node', '-p', '[process.env.BOARD_PASSWORD, process.env.METRICS_TOKEN].join()'];
    const seen = (env = {}) => runService({ ...board, command: shows }, env);
    try {
      await runService(secrets, {});
      const first = await seen();
      expect(first).toMatch(/^[\w-]{24},[\w-]{24}\n$/);
      const [password, token] = first.trim().split(',') as [string, string];
      expect(readConfig({ BOARD_PASSWORD: password, METRICS_TOKEN: token })).toBeTruthy();
      expect(password).not.toBe(token);
      await runService(secrets, {});
      expect(await seen({ BOARD_PASSWORD: '' })).toBe(first);
      expect(await seen({ BOARD_PASSWORD: "chosen $1 'so'" })).toBe(`chosen $1 'so',${token}\n`);
    } finally {
      await rm(folder, { recursive: true });
    }
    for (const service of Object.values(ours)) {
      expect(service.entrypoint).toEqual(web.entrypoint);
      expect(service.volumes).toEqual(['secrets:/secrets:ro']);
    }
    // The container that writes the secrets has no network.
    expect(secrets).toMatchObject({ network_mode: 'none', restart: 'no', user: 'root' });
  });

  test('keeps the data of Postgres and Redis in named volumes', () => {
    expect(postgres.volumes).toEqual(['postgres-data:/var/lib/postgresql/data']);
    expect(redis.volumes).toEqual(['redis-data:/data']);
    expect(Object.keys(compose.volumes).sort()).toEqual(['postgres-data', 'redis-data', 'secrets']);
  });

  test('starts processes once the tables exist and both stores are healthy', () => {
    const condition = (name: string) => ({ condition: name });
    for (const service of [web, worker, sync, board]) {
      expect(service.depends_on).toEqual({
        release: condition('service_completed_successfully'),
        postgres: condition('service_healthy'),
        redis: condition('service_healthy'),
        secrets: condition('service_completed_successfully'),
      });
    }
    expect(release.depends_on).toEqual({
      postgres: condition('service_healthy'),
      secrets: condition('service_completed_successfully'),
    });
    expect(release.restart).toBe('no');
  });

  test('allows scaling of web, workers and sync: no container name, no fixed port', () => {
    for (const service of [web, worker, sync]) expect(service.container_name).toBeUndefined();
    for (const service of [worker, sync]) expect(service.ports).toBeUndefined();
    // A range has one port per container.
    expect(web.ports).toEqual([`\${WEB_PORTS:-${settings.PORT.default}}:${settings.PORT.default}`]);
  });

  test('exposes health and metrics of every process to the others of its network', () => {
    for (const [service, host] of [
      [web, 'HOST'],
      [worker, 'WORKER_HOST'],
      [sync, 'SYNC_HOST'],
      [board, 'BOARD_HOST'],
    ] as const)
      expect(service.environment).toMatchObject({ [host]: '0.0.0.0' });
  });

  test('publishes web on the port of its setting, and the console on this machine only', () => {
    expect(web.environment).toMatchObject({ HOST: '0.0.0.0', PORT: settings.PORT.default });
    expect(board.environment).toMatchObject({
      BOARD_HOST: '0.0.0.0',
      BOARD_PORT: settings.BOARD_PORT.default,
    });
    expect(board.ports).toEqual([`127.0.0.1:${settings.BOARD_PORT.default}:${settings.BOARD_PORT.default}`]);
    expect(worker.environment).toMatchObject({ WORKER_PORT: settings.WORKER_PORT.default });
    expect(sync.environment).toMatchObject({ SYNC_PORT: settings.SYNC_PORT.default });
    expect(postgres.ports).toBeUndefined();
    expect(redis.ports).toBeUndefined();
  });

  test('gives every long-running process a health check', () => {
    for (const [name, { healthcheck }] of Object.entries(compose.services)) {
      if (name === 'release' || name === 'secrets') expect(healthcheck).toEqual({ disable: true });
      else expect(healthcheck?.test?.[0], name).toBe('CMD');
    }
    for (const name of ['web', 'worker', 'sync', 'board']) {
      expect(compose.services[name]?.healthcheck?.test).toEqual(['CMD', 'node', 'dist/src/health.js', name]);
    }
  });

  test('has a health check that fails if the process does not answer', async () => {
    const check = startProcess('dist/src/health.js', { PORT: '1' }, ['web']);
    expect(await check.exit).toEqual({ code: 1, signal: null });
  });
});
