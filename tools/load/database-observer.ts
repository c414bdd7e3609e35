import pg from 'pg';
import { hashApiKey } from '../../src/store/credentials.ts';
import type { Observer } from './observer.ts';

const findWorkspace = 'select workspace_id::text as id from api_keys where key_hash = $1';

/** Counts objects of /users/track without identity operations. */
const countApplied = `
  select (
    (select coalesce(sum(objects + dead_letters), 0) from lane_totals) -
    (select coalesce(sum(identity), 0) from usage)
  )::float8 as applied`;

/** Uses the unique index profiles_external_id. */
const findProfile = 'select from profiles where workspace_id = $1 and external_id = $2';

/**
 * Creates an observer that queries the service's own Postgres, which is exact and cheap.
 * @param key an API key of the workspace that receives the traffic
 * @throws {Error} if the key is not in the database
 */
export async function observeDatabase(databaseUrl: string, key: string): Promise<Observer> {
  const pool = new pg.Pool({ connectionString: databaseUrl, max: 2 });
  pool.on('error', () => {});
  const { rows } = await pool.query<{ id: string }>(findWorkspace, [hashApiKey(key)]);
  const workspace = rows[0]?.id;
  if (!workspace) {
    await pool.end();
    throw new Error('the database does not know this API key: is it the database of that service?');
  }
  return {
    source: 'rows in Postgres',
    probeEvery: 100,
    readEvery: 10,
    async applied() {
      const result = await pool.query<{ applied: number }>({ name: 'applied', text: countApplied });
      return result.rows[0]!.applied;
    },
    async isReadable(externalId) {
      const { rowCount } = await pool.query({
        name: 'find-profile',
        text: findProfile,
        values: [workspace, externalId],
      });
      return rowCount === 1;
    },
    stop: () => pool.end(),
  };
}
