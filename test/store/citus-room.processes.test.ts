import { appendFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { expect, test } from 'vitest';
import { openPool } from '../../src/store/database.ts';
import { NotDistributable, requireCitus } from '../../src/store/distribute.ts';
import { startPostgresServer } from '../backup/servers.ts';
import { citusUrl, createCitusDatabase } from '../setup/citus.ts';
import { temporaryFolder } from '../setup/fixtures.ts';
import { findPostgresPrograms } from '../setup/installed.ts';
import { startProcess } from '../setup/processes.ts';

/** Program folder of an installed Postgres that includes the Citus library; undefined if there is none. */
const programs = [findPostgresPrograms()].find(
  (folder) => folder && existsSync(path.join(folder, '../lib/citus.so')),
);

const isHere = Boolean(citusUrl && programs);

test.skipIf(!isHere)(
  'rejects a node with too few prepared transactions before any change, with both numbers',
  async () => {
    const node = await startNode('max_prepared_transactions = 3');
    const { url } = await createCitusDatabase();
    const coordinator = openPool(url, 1);
    try {
      await requireCitus(coordinator);
      await makeNode(node.url, new URL(url).pathname.slice(1));
      const { hostname, port } = new URL(node.url);
      await coordinator.query('select citus_add_node($1, $2)', [hostname, Number(port)]);
      const { rows } = await coordinator.query('show max_connections');
      const wanted = rows[0].max_connections;
      const refusal = `DISTRIBUTE=citus needs max_prepared_transactions of ${wanted} on every node, as many as the coordinator has max_connections, and ${hostname}:${port} has 3: set it there and restart the node`;
      await expect(requireCitus(coordinator)).rejects.toThrow(new NotDistributable(refusal));

      const release = startProcess('dist/src/release.js', { DATABASE_URL: url, DISTRIBUTE: 'citus' });
      expect(await release.exit).toMatchObject({ code: 1 });
      expect(release.log.flatMap(({ text }) => text ?? [])).toEqual([`release: ${refusal}`]);
      const tables = "select count(*)::integer as number from pg_tables where schemaname = 'public'";
      expect((await coordinator.query(tables)).rows).toEqual([{ number: 0 }]);

      await node.stop();
      await expect(requireCitus(coordinator)).rejects.toThrow(
        new RegExp(`DISTRIBUTE=citus needs every node, and ${hostname}:${port} does not answer`),
      );
    } finally {
      await coordinator.end();
    }
  },
);

test.skipIf(isHere)(
  'LEFT OUT: no Citus is tested, because CITUS_URL is not set or Citus is not installed',
  () => {},
);

/** Starts a Postgres that can become a node. It trusts every local user, as the Citus of CITUS_URL does. */
async function startNode(setting: string) {
  const home = temporaryFolder('penstock-node-');
  const first = await startPostgresServer(programs!, home);
  await runQuery(first.url, 'create role postgres superuser login');
  await first.stop();
  const at = (name: string) => path.join(first.PGDATA, name);
  appendFileSync(at('postgresql.conf'), `\nshared_preload_libraries = 'citus'\n${setting}\n`);
  const others = readFileSync(at('pg_hba.conf'), 'utf8');
  writeFileSync(at('pg_hba.conf'), `host all postgres 127.0.0.1/32 trust\n${others}`);
  return startPostgresServer(programs!, home);
}

async function makeNode(url: string, database: string): Promise<void> {
  await runQuery(url, `create database ${database}`);
  const own = new URL(url);
  own.pathname = database;
  await runQuery(own.href, 'create extension citus');
}

async function runQuery(url: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(statement).finally(() => client.end());
}
