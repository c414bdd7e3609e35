import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { afterAll, inject } from 'vitest';
import { endLeftBehind, leaveBehind } from './servers.ts';
import { TEMPLATE } from './template.ts';

export {
  startProcess,
  startRedis,
  type TestProcess,
  type TestRedis,
  temporaryFolder,
  waitUntil,
} from './servers.ts';

// What a failed test left behind ends with its file.
afterAll(endLeftBehind);

export interface TestDatabase {
  url: string;
  drop(): Promise<void>;
}

/** A migrated, empty database of its own, on the test cluster. Dropped after the file at the latest. */
export function createDatabase(): Promise<TestDatabase> {
  return copyDatabase(TEMPLATE);
}

/** A database without any table of ours. */
export function createBareDatabase(): Promise<TestDatabase> {
  return copyDatabase('template1');
}

async function copyDatabase(template: string): Promise<TestDatabase> {
  const name = `test_${randomBytes(6).toString('hex')}`;
  const url = new URL(inject('postgresUrl'));
  url.pathname = name;
  // As files: otherwise every page of the template goes through the log.
  await administer(`create database ${name} template ${template} strategy file_copy`);
  const drop = () => administer(`drop database if exists ${name} with (force)`);
  leaveBehind(drop);
  return { url: url.href, drop };
}

async function administer(statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: inject('postgresUrl') });
  await client.connect();
  await client.query(statement).finally(() => client.end());
}
