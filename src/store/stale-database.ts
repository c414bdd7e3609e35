import { PrismaPg } from '@prisma/adapter-pg';
import pg from 'pg';
import { PrismaClient } from '../generated/prisma/client.ts';
import type { Database, Pool } from './database.ts';
import { boundOf } from './pooling.ts';
import { PostgresClient } from './postgres-client.ts';

/** Number of connections that read. Another connection holds the snapshot. */
const CONNECTIONS = 2;

/** A connection with one transaction from start to end. `begin` and `commit` of its users have no effect. */
class SnapshotClient extends PostgresClient {
  join(snapshot?: string): Promise<unknown> {
    const begin = 'begin isolation level repeatable read read only';
    return super.query(snapshot === undefined ? begin : `${begin}; set transaction snapshot '${snapshot}'`);
  }

  // biome-ignore lint/suspicious/noExplicitAny: `pg` accepts a text or an object, then values or a callback.
  override query(statement: any, ...given: any[]): any {
    const text: unknown = typeof statement === 'string' ? statement : statement?.text;
    if (typeof text === 'string' && boundOf(text)) return super.query('select', ...given);
    return super.query(statement, ...given);
  }
}

/** Opens the database as it is now, for reading. Close it within seconds, because Postgres keeps old rows for it. */
export async function openStaleDatabase({ options }: Pool): Promise<Database> {
  const { connectionString } = options;
  const holder = new SnapshotClient({ connectionString });
  holder.on('error', () => {});
  await holder.connect();
  await holder.join();
  const { rows } = await holder.query('select pg_export_snapshot() as snapshot');
  const { snapshot } = rows[0];
  const pool = new pg.Pool({
    Client: SnapshotClient,
    connectionString,
    max: CONNECTIONS,
    verify(client: pg.PoolClient, done: (error?: Error) => void) {
      (client as unknown as SnapshotClient).join(snapshot).then(() => done(), done);
    },
  } as pg.PoolConfig);
  pool.on('error', () => {});
  const prisma = new PrismaClient({ adapter: new PrismaPg(pool) });
  return {
    pool,
    prisma,
    async stop() {
      await Promise.all([prisma.$disconnect(), pool.end()]);
      await holder.end();
    },
  };
}
