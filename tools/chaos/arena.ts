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

/** A Postgres of the suite's own, on loopback, in a folder that goes away with it. */
export interface Arena {
  /** A migrated, empty database. */
  createDatabase(): Promise<{ url: string; drop(): Promise<void> }>;
  stop(): Promise<void>;
}

/** @param programs folder of Postgres's programs; those from npm unless told */
export async function openArena(programs?: string): Promise<Arena> {
  const folder = mkdtempSync(path.join(tmpdir(), 'penstock-chaos-'));
  // Postgres may run as another user, who has to pass.
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
      return { url, drop: () => ask(postgres.url, `drop database if exists ${name} with (force)`) };
    },
    async stop() {
      await postgres.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** @returns its address */
async function makeDatabase(server: string, name: string, template = 'template1'): Promise<string> {
  await ask(server, `create database ${name} template ${template}`);
  const url = new URL(server);
  url.pathname = name;
  return url.href;
}

async function ask(url: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(statement).finally(() => client.end());
}
