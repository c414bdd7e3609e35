import pg from 'pg';
import { afterAll } from 'vitest';
import { penstockOn } from '../admin/penstock.ts';
import { createDatabase } from '../setup/fixtures.ts';
import { createWorkspace } from '../setup/workspace.ts';

/**
 * Creates a database with the workspace `shop`, and the admin command on it; to be called within `beforeAll`.
 */
export async function openShop() {
  const { url } = await createDatabase();
  const pool = new pg.Pool({ connectionString: url, max: 4 });
  pool.on('error', () => {});
  afterAll(() => pool.end());
  return { pool, on: penstockOn(url), workspaceId: (await createWorkspace(pool)).id };
}
