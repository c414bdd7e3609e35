import type { Pool } from '../database.ts';

/** Reads the whole table, which is small. */
const statement = `
  select integrations.id, integrations.schedule
  from integrations
  where integrations.status = 'active'
    and integrations.schedule is not null
  order by integrations.id`;

/** Active integrations with a schedule, as it was given. */
export async function listScheduled(pool: Pool): Promise<{ id: string; schedule: string }[]> {
  const { rows } = await pool.query<{ id: string; schedule: string }>({
    name: 'list-scheduled-integrations',
    text: statement,
  });
  return rows;
}
