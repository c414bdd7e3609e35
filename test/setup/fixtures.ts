import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { inject } from 'vitest';
import { copyCitusDatabase } from './citus.ts';
import { leaveBehind } from './left-behind.ts';
import { copyCluster } from './made-cluster.ts';
import { TEMPLATE } from './template.ts';

export { temporaryFolder } from './left-behind.ts';
export { startRedis, type TestRedis } from './redis.ts';
export { waitUntil } from './wait-until.ts';

export interface TestDatabase {
  url: string;
  drop(): Promise<void>;
}

/** Creates a migrated, empty database. Dropped after the file at the latest. */
export function createDatabase(): Promise<TestDatabase> {
  const citusTemplate = inject('citusTemplate');
  return citusTemplate ? copyCitusDatabase(citusTemplate) : copyDatabase(TEMPLATE);
}

/**
 * Creates a database on one Postgres, also where tests run on a Citus: for tests of planner, files or
 * migrations.
 */
export function createDatabaseOfOne(): Promise<TestDatabase> {
  return copyDatabase(TEMPLATE);
}

/** Copies a finished cluster into a new data folder, for tests of later steps. */
export function useMadeCluster(home: string): void {
  copyCluster(inject('madeCluster'), home);
}

/** Creates a database without tables. */
export function createBareDatabase(): Promise<TestDatabase> {
  return copyDatabase('template1');
}

async function copyDatabase(template: string): Promise<TestDatabase> {
  const name = `test_${randomBytes(6).toString('hex')}`;
  const url = new URL(inject('postgresUrl'));
  url.pathname = name;
  // Copy files: otherwise every page of the template would go through the write-ahead log.
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
