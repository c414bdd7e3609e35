import { expect, test } from 'vitest';
import { openPool } from '../../src/store/database.ts';
import { NotDistributable, requireCitus } from '../../src/store/distribute.ts';
import { forEachWorkspace, isDistributed } from '../../src/store/distributed.ts';
import { createDatabase } from '../setup/fixtures.ts';

test.skipIf(process.env.TEST_STORE === 'citus')(
  'a Postgres without the extension cannot be distributed, and one sentence names the reason',
  async () => {
    const pool = openPool((await createDatabase()).url, 1);
    await expect(requireCitus(pool)).rejects.toThrow(NotDistributable);
    await expect(requireCitus(pool)).rejects.toThrow(/^DISTRIBUTE=citus needs the extension citus .* empty$/);
    expect(await isDistributed(pool)).toBe(false);
    await pool.end();
  },
);

test.skipIf(process.env.TEST_STORE === 'citus')(
  'on one Postgres a statement over rows of several workspaces is sent once',
  async () => {
    const pool = openPool((await createDatabase()).url, 1);
    const sent: (readonly string[])[] = [];
    const rows = await forEachWorkspace(
      pool,
      { given: ['a', 'b'], workspaceOf: (one) => one },
      async (some) => {
        sent.push(some);
        return [...some];
      },
    );
    expect(sent).toEqual([['a', 'b']]);
    expect(rows).toEqual(['a', 'b']);
    await pool.end();
  },
);
