import type { Pool } from '../../../src/store/database.ts';
import { copied, distributed } from '../../../src/store/distributed-tables.ts';

/** Keys that a table has without its workspace as long as it lies on one Postgres. */
const keysWithWorkspace: Record<string, string> = {
  ledger: 'workspace_id, envelope_id',
  cut_envelopes: 'workspace_id, envelope_id',
  outcomes: 'workspace_id, object_id',
  dead_letters: 'workspace_id, id',
  sync_row_errors: 'workspace_id, job_id, number',
};

/** Tables of what has no workspace on one Postgres yet. */
const nameless = ['ledger', 'cut_envelopes', 'outcomes'];

/** Triggers of them, which a distributed table cannot have. */
const triggers = {
  ledger: ['keep_cut_envelopes'],
  dead_letters: ['name_failures', 'rename_failure', 'unname_failure'],
  sync_row_errors: ['name_failures', 'rename_failure', 'unname_failure', 'own_row_error'],
};

/** What the tables of a migrated, empty Citus become: for the statements alone, without what the triggers did. */
function steps(): string[] {
  return [
    ...nameless.map((table) => `alter table ${table} add column workspace_id uuid`),
    ...Object.entries(triggers).flatMap(([table, names]) =>
      names.map((name) => `drop trigger ${name} on ${table}`),
    ),
    ...Object.entries(keysWithWorkspace).flatMap(([table, key]) => [
      `alter table ${table} drop constraint ${table}_pkey`,
      `alter table ${table} add primary key (${key})`,
    ]),
    ...['dead_letters', 'sync_row_errors'].flatMap((table) => [
      `drop index ${table}_place`,
      `create unique index ${table}_place on ${table} (workspace_id, place)`,
    ]),
    ...copied.map((table) => `select create_reference_table('${table}')`),
    ...Object.entries(distributed).map(([table, column], place) => {
      const [first] = Object.keys(distributed);
      return `select create_distributed_table('${table}', '${column}', colocate_with => '${place === 0 ? 'none' : first}')`;
    }),
  ];
}

/** @param pool of the coordinator; its tables are those of the last migration, and empty */
export async function distribute(pool: Pool): Promise<void> {
  for (const step of steps()) await pool.query(step);
}
