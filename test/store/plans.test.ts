import { afterAll, beforeAll, expect, it } from 'vitest';
import { everyStatementByIndex } from '../../src/store/by-index.ts';
import { type Database, openDatabase } from '../../src/store/database.ts';
import { createDatabase } from '../setup/fixtures.ts';
import type { Filled } from './plans/fill.ts';
import { fill } from './plans/fill.ts';
import { ofDelivery } from './plans/of-delivery.ts';
import { ofIdentity } from './plans/of-identity.ts';
import { ofSubscriptions } from './plans/of-subscriptions.ts';
import { ofSyncs } from './plans/of-syncs.ts';
import { ofUsers } from './plans/of-users.ts';
import { ofWorkspaces } from './plans/of-workspaces.ts';
import { accesses, explainCustom, explainGeneric, readCatalog, readsTooMuch } from './plans/read.ts';
import { recordingOn } from './plans/record.ts';

let database: Database;
let workers: Database;
let filled: Filled;
beforeAll(async () => {
  const { url } = await createDatabase();
  database = openDatabase(url, 2);
  workers = openDatabase(url, 1, { session: everyStatementByIndex });
  filled = await fill(database.pool);
});
afterAll(async () => {
  await Promise.all([database.stop(), workers.stop()]);
});

it('plans', async () => {
  const catalog = await readCatalog(database.pool);
  const tx = await database.pool.connect();
  const { store, sent } = recordingOn(tx);
  for (const asking of [ofUsers, ofIdentity, ofSubscriptions, ofDelivery, ofWorkspaces, ofSyncs]) {
    for (const call of asking(store, filled)) {
      await tx.query('begin');
      await call().catch((error) => console.log('ERR', sent.at(-1)?.file, error.message));
      await tx.query('rollback');
    }
  }
  const wx = await workers.pool.connect();
  const out = new Set<string>();
  const used = new Set<string>();
  for (const one of sent) {
    for (const [mode, plan] of [
      ['edge', await explainCustom(tx, one)],
      [
        'edge-generic',
        await (async () => {
          await tx.query('set plan_cache_mode = force_generic_plan');
          const p = await explainGeneric(tx, one);
          await tx.query('reset plan_cache_mode');
          return p;
        })(),
      ],
      ['worker', await explainGeneric(wx, one)],
    ] as const) {
      for (const access of accesses(plan, catalog)) {
        if (access.index) used.add(access.index);
        if (readsTooMuch(access))
          out.add(
            `${one.file}:${one.line} ${mode} ${access.table} ${access.index ?? 'SEQ'} ${access.condition.slice(0, 60)}`,
          );
      }
    }
  }
  const all = [
    ...new Set([...catalog].filter(([, { root, table }]) => root !== table).map(([, { root }]) => root)),
  ];
  console.log([...out].sort().join('\n'));
  console.log(
    'UNUSED',
    all
      .filter((i) => !used.has(i))
      .sort()
      .join('\n'),
  );
  console.log('SITES', [...new Set(sent.map((s) => s.file + ':' + s.line))].length);
  tx.release();
  wx.release();
});
