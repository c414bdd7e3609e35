import { migrate } from '../../src/processes/migrate.ts';
import { openPool } from '../../src/store/database.ts';
import { distribute } from '../../src/store/distribute.ts';
import { createCitusDatabase } from '../setup/citus.ts';

/**
 * Creates a database with our tables, distributed over the nodes of the Citus of CITUS_URL, dropped at the
 * end. @returns its URL
 */
export async function createDistributedDatabase(): Promise<string> {
  const { url } = await createCitusDatabase();
  await migrate(url);
  const plain = openPool(url, 1);
  await distribute(plain);
  await plain.end();
  return url;
}
