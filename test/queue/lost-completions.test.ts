import pg from 'pg';
import { v7 as uuidv7 } from 'uuid';
import { expect, test } from 'vitest';
import { readConfig } from '../../src/platform/config.ts';
import { createLog } from '../../src/platform/log.ts';
import { openQueue } from '../../src/queue/bullmq-queues.ts';
import { connectWorker } from '../../src/queue/connection.ts';
import { laneName } from '../../src/queue/lanes.ts';
import { Accounts } from '../../workers/lane/accounts.ts';
import { type LaneContext, LaneWorker } from '../../workers/lane/lane-worker.ts';
import { createDatabase, waitUntil } from '../setup/fixtures.ts';
import { silentFences } from '../workers/no-fences.ts';

test('a job that took effect is not kept as failed if its completion could not be stored', async () => {
  const { url } = await createDatabase();
  const config = readConfig({ DATABASE_URL: url });
  const connection = connectWorker(config, url);
  const queue = openQueue<unknown>(connection, laneName(0));
  const observer = new pg.Pool({ connectionString: url, max: 1 });
  const blocker = new pg.Client({ connectionString: url });
  await blocker.connect();
  // The network error that broke the completion also breaks the removal twice.
  await observer.query(`
    create sequence public.removals;
    create function public.break_off() returns trigger language plpgsql as $$
    begin
      if nextval('public.removals') < 3 then raise exception 'broken off'; end if;
      return old;
    end $$;
    create trigger break_off before delete on bullmq.job for each row execute function public.break_off()`);
  let applied = 0;
  const scheduler: LaneContext['scheduler'] = {
    accounts: new Accounts(),
    forget() {},
    async step({ envelopes }) {
      applied++;
      // From here on, completing the job blocks.
      const done = envelopes().map(({ id }) => id);
      await blocker.query('begin; lock table bullmq.job in access exclusive mode');
      return { kind: 'applied', done, left: new Map() };
    },
  };
  await queue.add('envelope', { requests: [], objects: [] }, { jobId: uuidv7(), attempts: 1 });
  const log = createLog('test', 'silent');
  const lane = new LaneWorker(0, {
    laneStore: connection.laneStore,
    scheduler,
    fences: silentFences(),
    config,
    log,
  });

  await waitUntil(
    async () => {
      const { rows } = await observer.query(
        `select pg_terminate_backend(pid) from pg_stat_activity
          where datname = current_database() and wait_event_type = 'Lock' and query ~* 'completed|finished'`,
      );
      return rows.length > 0;
    },
    { what: 'the completion, which is cut' },
  );
  await blocker.query('rollback');
  await waitUntil(async () => Object.values(await queue.getJobCounts()).every((count) => count === 0), {
    what: 'a queue without any job',
  });
  expect(applied).toBe(1);
  await lane.stop();
  await queue.close();
  await connection.stop();
  await Promise.all([observer.end(), blocker.end()]);
});
