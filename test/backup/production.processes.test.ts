import path from 'node:path';
import pg from 'pg';
import { describe, expect, test } from 'vitest';
import { statusOf } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { startRedis, temporaryFolder, waitUntil } from '../setup/fixtures.ts';
import { findPostgresPrograms } from '../setup/installed.ts';
import { isLong } from '../setup/length.ts';
import { leasePort } from '../setup/ports.ts';
import { startProcess, type TestProcess } from '../setup/processes.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { countSets, drained, OBJECTS, once, sendSet } from './counted.ts';
import { follow } from './documented.ts';
import { homeWithPasswordOf, startPostgresServer, type TestServer } from './servers.ts';

/** Starts the processes of one installation. */
function openInstallation(DATABASE_URL: string, REDIS_URL: string) {
  const env = { DATABASE_URL, REDIS_URL, LANES: '2', QUEUE_TIMEOUT_MS: '10000', LOG_LEVEL: 'warn' };
  const running: TestProcess[] = [];

  async function start(file: string, setting: string): Promise<number> {
    const port = await leasePort();
    running.push(startProcess(`dist/${file}`, { ...env, [setting]: String(port) }));
    await waitUntil(async () => (await statusOf(port, '/readyz')) === 200, { what: file });
    return port;
  }

  return {
    release: async () =>
      expect((await startProcess('dist/src/release.js', env).exit).code, 'the exit of release').toBe(0),
    web: () => start('src/web.js', 'PORT'),
    worker: () => start('workers/worker.js', 'WORKER_PORT'),
    async stop() {
      for (const one of running.splice(0)) {
        one.kill('SIGTERM');
        expect((await one.exit).code).toBe(0);
      }
    },
  };
}

/** A way to back up and restore Postgres, by the text of the page; `bring` returns the new server. */
interface Way {
  programs: string | undefined;
  keep(server: TestServer, BACKUP: string): Promise<void>;
  bring(server: TestServer, BACKUP: string): Promise<TestServer>;
}

const byFolder: Way = {
  programs: undefined,
  async keep(server, BACKUP) {
    await server.stop();
    follow('keep the data folder of Postgres', { PGDATA: server.PGDATA, BACKUP });
  },
  async bring(server, BACKUP) {
    const home = homeWithPasswordOf(server);
    follow('bring the data folder of Postgres back', { PGDATA: path.join(home, 'postgres'), BACKUP });
    return startPostgresServer(undefined, home);
  },
};

const programs = findPostgresPrograms();

const byDump: Way = {
  programs,
  async keep({ url }, BACKUP) {
    follow('dump Postgres', { DATABASE_URL: url, BACKUP }, [programs!]);
  },
  async bring(_server, BACKUP) {
    const server = await startPostgresServer(programs);
    follow('restore the dump', { DATABASE_URL: server.url, BACKUP }, [programs!]);
    return server;
  },
};

/**
 * The Postgres from npm has no pg_dump: that way is tested if another Postgres is installed. In the short
 * form it is the only
 * way, because test/backup/embedded copies a data folder.
 */
const methods: [string, Way][] = [
  ...(isLong || !programs ? ([['its data folder', byFolder]] as [string, Way][]) : []),
  ...(programs ? ([['a dump', byDump]] as [string, Way][]) : []),
];

describe.each(methods)('an installation backed up while stopped, Postgres by %s', (_, method) => {
  test('G1, G2, G6: is restored elsewhere with every accepted object once, and the same key', async () => {
    const postgres = await startPostgresServer(method.programs);
    const redis = await startRedis();
    const original = openInstallation(postgres.url, redis.url);
    await original.release();
    const pool = new pg.Pool({ connectionString: postgres.url, max: 1 });
    const { key } = await createWorkspace(pool);
    await pool.end();
    const [web] = await Promise.all([original.web(), original.worker()]);
    await sendSet(web, key, 'applied');
    await drained(web);
    await original.stop();
    await sendSet(await original.web(), key, 'waiting');
    await original.stop();

    const BACKUP = temporaryFolder('penstock-backup-');
    await redis.stop();
    follow('keep Redis', { REDIS_DIR: redis.dir, BACKUP });
    await method.keep(postgres, BACKUP);

    const REDIS_DIR = temporaryFolder('penstock-redis-');
    follow('bring Redis back', { REDIS_DIR, BACKUP });
    const server = await method.bring(postgres, BACKUP);
    const restored = openInstallation(server.url, (await startRedis({ dir: REDIS_DIR })).url);
    await restored.release();
    await restored.worker();
    const port = await restored.web();
    expect(await drained(port)).toBe(2 * OBJECTS);
    expect(await countSets(server.url)).toEqual({ applied: once, waiting: once });
    const { body } = await send(port, {
      path: '/users/export/ids',
      key,
      json: { external_ids: ['waiting-7'] },
    });
    expect(body.users).toMatchObject([{ external_id: 'waiting-7', home_city: 'waiting' }]);
    await restored.stop();
  });
});
