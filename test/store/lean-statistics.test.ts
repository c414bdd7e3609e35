import { expect, test } from 'vitest';
import { openDatabase } from '../../src/store/open-database.ts';
import { createDatabaseOfOne } from '../setup/fixtures.ts';

/** PostgreSQL's default target of 100 samples 30,000 rows. */
const MAX_TARGET = 10;

const grown = ['profiles', 'user_aliases', 'event_summaries', 'purchase_summaries', 'events', 'purchases'];

test('G5: ANALYZE samples growing tables with a bounded target, also in later partitions', async () => {
  const { url } = await createDatabaseOfOne();
  const database = openDatabase(url, 1);
  try {
    await database.pool.query("select ensure_month_partitions(now() + interval '1 year', 1)");
    const { rows } = await database.pool.query(
      `select relname, attname, atttypid = 'jsonb'::regtype as jsonb, attstattarget as target
        from pg_attribute
        join pg_class on pg_class.oid = attrelid
        left join pg_inherits on inhrelid = pg_class.oid
        where relkind = 'r' and attnum > 0 and not attisdropped
          and coalesce(inhparent, pg_class.oid) = any ($1::regclass[])`,
      [grown],
    );
    // Two kinds, each with a default partition and five months: the present one, two later ones, and two in a
    // year.
    const tables = new Set(rows.map(({ relname }) => relname));
    expect(tables.size).toBe(4 + 2 * 6);
    for (const { relname, attname, jsonb, target } of rows) {
      expect(target, `${relname}.${attname}`).toBe(jsonb ? 0 : MAX_TARGET);
    }
  } finally {
    await database.stop();
  }
});
