import { randomBytes } from 'node:crypto';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import pg from 'pg';
import { createLog } from '../../src/platform/log.ts';
import { migrate } from '../../src/processes/migrate.ts';
import { startPostgresOnPort } from '../../test/setup/postgres-on-port.ts';
import { TEMPLATE } from '../../test/setup/template.ts';
import { binariesIn } from '../bench/environment.ts';

/**
 * A separate Postgres of the suite on the loopback address, in a temporary folder that is removed with it.
 */
export interface Arena {
  /** Creates a migrated, empty database. */
  createDatabase(): Promise<{ url: string; drop(): Promise<void> }>;
  stop(): Promise<void>;
}

/** @param programs folder of the Postgres programs; by default the programs of the npm package */
export async function openArena(programs?: string): Promise<Arena> {
  const folder = mkdtempSync(path.join(tmpdir(), 'penstock-chaos-'));
  // Postgres may run as another user, who must be able to enter the folder.
  chmodSync(folder, 0o755);
  const postgres = await startPostgresOnPort(
    path.join(folder, 'data'),
    createLog('test', 'warn'),
    programs === undefined ? undefined : binariesIn(programs),
  );
  const template = await makeDatabase(postgres.url, TEMPLATE);
  await migrate(template);
  return {
    async createDatabase() {
      const name = `chaos_${randomBytes(6).toString('hex')}`;
      const url = await makeDatabase(postgres.url, name, TEMPLATE);
      return { url, drop: () => run(postgres.url, `drop database if exists ${name} with (force)`) };
    },
    async stop() {
      await postgres.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** @returns the address of the database */
async function makeDatabase(server: string, name: string, template = 'template1'): Promise<string> {
  await run(server, `create database ${name} template ${template}`);
  const url = new URL(server);
  url.pathname = name;
  return url.href;
}

async function run(url: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(statement).finally(() => client.end());
}
