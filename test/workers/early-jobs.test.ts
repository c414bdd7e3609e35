import { afterAll, beforeAll, expect, test } from 'vitest';
import { createLog } from '../../src/platform/log.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { event } from './batch.ts';
import { createFenceScene, type FenceScene } from './fence-scene.ts';

/** Number of envelopes: enough for many transactions that each apply several of them. */
const ENVELOPES = 300;

/** Delays deletes as on a busy server, between finding and deleting the row, and records the leased jobs. */
const slowDeletes = `
create table handed_out (id text);
create function linger() returns trigger language plpgsql as $$
begin
  if current_query() like '%remove(%' then
    perform pg_sleep(random() * 0.02);
  end if;
  return null;
end
$$;
create trigger linger before delete on bullmq.job for each statement execute function public.linger();
create function hand_out() returns trigger language plpgsql as $$
begin
  insert into public.handed_out values (new.id);
  return null;
end
$$;
create trigger hand_out after update on bullmq.job
for each row when (old.state = 'waiting' and new.state = 'active') execute function public.hand_out()`;

let scene: FenceScene;
beforeAll(async () => {
  scene = await createFenceScene('postgres');
  await scene.pool.query(slowDeletes);
});
afterAll(() => scene.stop());

test('jobs that took effect early are removed before the lane leases another job', async () => {
  const warnings: unknown[] = [];
  const log = createLog('test', 'silent');
  log.warn = (...line: unknown[]) => void warnings.push(line);
  const entries = Array.from({ length: ENVELOPES }, () => scene.plain(0, event('ann')));
  const stop = scene.startWorker([0], { log });
  for (const entry of entries) await scene.producer.add([entry]);
  await waitUntil(
    async () => (await scene.jobs(0, 'waiting')).length + (await scene.jobs(0, 'active')).length === 0,
    { what: 'an empty lane' },
  );
  await stop();
  const { rows } = await scene.pool.query(
    `select (select count(*) from ledger) as applied,
            (select count(distinct xmin::text) from ledger) as transactions,
            (select count(*) from handed_out) as handed_out`,
  );
  const { applied, transactions, handed_out } = rows[0];
  expect(applied).toBe(ENVELOPES);
  expect(transactions).toBeLessThan(ENVELOPES / 2);
  // No job was leased after it had been applied, only to be deleted while active. On a busy machine, one lease can
  // cover several transactions.
  expect(handed_out).toBeLessThanOrEqual(transactions);
  expect(warnings).toEqual([]);
});
