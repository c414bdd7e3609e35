import { v7 } from 'uuid';
import type { ObjectStore } from '../../src/object-store/object-store.ts';
import { openObjectStore } from '../../src/object-store/open-object-store.ts';
import { createReach } from '../../src/platform/reach.ts';
import type { Retention } from '../../src/retention/files.ts';
import { restoreMonth } from '../../src/retention/restore.ts';
import type { Pool } from '../../src/store/database.ts';
import { openRetentionPool } from '../../src/store/retention.ts';
import { createScene, has, type Scene } from '../identity/scene.ts';
import { startS3 } from '../integrations/s3.ts';
import { temporaryFolder } from '../setup/left-behind.ts';

export let scene: Scene;
export let pool: Pool;
export let workspaceId: string;
export const other = v7();
/** Each test of a file has a month of its own, in order; each file has a database of its own. */
const FIRST = 2000;
let year = FIRST;
export let month: string;

/** Creates a store with two workspaces, one of them with four users. */
export async function begin(): Promise<void> {
  scene = await createScene();
  year = FIRST;
  ({ workspaceId } = scene);
  pool = openRetentionPool(scene.url);
  await pool.query(
    'insert into workspaces (id, name, company_id) select $1, $2, company_id from workspaces limit 1',
    [other, 'other'],
  );
  await scene.apply(['ada', 'bob', 'cyd', 'dan'].map((name) => has(name, {})));
}

export async function end(): Promise<void> {
  await pool.end();
  await scene.stop();
}

/** Moves to the month of the next test. */
export async function nextMonth(): Promise<void> {
  year += 1;
  month = `${year}-03`;
  await pool.query('select ensure_month_partitions($1::timestamptz, 0)', [`${month}-01T00:00:00Z`]);
  await setPolicy(workspaceId, 12);
  await setPolicy(other, 12);
  // Each test has its own archive.
  for (const table of [
    'archive_files',
    'archive_erasures',
    'retention_failures',
    "events where name = 'seen'",
    'purchases',
  ])
    await pool.query(`delete from ${table}`);
}

/** Sets the retention of a workspace; undefined removes it. */
export async function setPolicy(of: string, months: number | null | undefined): Promise<void> {
  await pool.query('delete from retention_policies where workspace_id = $1', [of]);
  if (months === undefined) return;
  await pool.query('insert into retention_policies (workspace_id, months) values ($1, $2)', [of, months]);
}

export const inFolder = (folder = temporaryFolder('penstock-archive-')) =>
  openObjectStore(folder, {
    reach: createReach({ refused: 'none' }),
    accessTo: () => Promise.reject(new Error('no bucket')),
  });

export async function inBucket(): Promise<ObjectStore> {
  const s3 = await startS3();
  const bucket = await s3.fill(temporaryFolder(), '');
  const { endpoint, credentials } = s3;
  return openObjectStore(`s3://${bucket}/archive`, {
    reach: createReach({ refused: 'none' }),
    accessTo: () => ({ region: 'eu-central-1', endpoint, credentials }),
  });
}

/** A bucket at a closed address. */
export const unreachable = () =>
  openObjectStore('s3://none/archive', {
    reach: createReach({ refused: 'none' }),
    accessTo: () => ({
      ...{ region: 'eu', endpoint: 'http://127.0.0.1:9' },
      credentials: { access_key_id: 'a', secret_access_key: 'b' },
    }),
  });

export const withStore = (store: ObjectStore | undefined, more: Partial<Retention> = {}): Retention => ({
  ...{ pool, store, months: 0, log: { info() {}, error() {} }, ...more },
});

/** Inserts rows of the month, one second apart, as if they had been accepted then. */
export async function fill(rows: number, { owner = 'ada', of = workspaceId, from = 0 } = {}): Promise<void> {
  const profile = of === workspaceId ? await scene.profileId(owner) : v7();
  const id = `(left(uuid_v7_floor($3::timestamptz + n * interval '1 s')::text, 24) || lpad(to_hex(n + 1), 12, '0'))::uuid`;
  const values = [of, profile, `${month}-02T00:00:00Z`, from, from + rows - 1];
  await pool.query(
    `insert into events select $1::uuid, ${id}, $2::uuid, 'seen', '2020-01-02T03:04:05.123456Z', 'app',
       jsonb_build_object('n', n, 'big', 12345678901234567890) from generate_series($4::integer, $5::integer) as n`,
    values,
  );
  await pool.query(
    `insert into purchases select $1::uuid, ${id}, $2::uuid, 'hat', 'EUR', 9.990000000000000000001, 2, now(), null, null
     from generate_series($4::integer, $4::integer + least(2, $5::integer - $4::integer)) as n`,
    values,
  );
}

export async function content(of = workspaceId): Promise<string[]> {
  const { rows } = await pool.query(
    `select events::text as row from events where workspace_id = $1 and id >= uuid_v7_floor($2) and id < uuid_v7_floor($3)
     union all
     select purchases::text from purchases where workspace_id = $1 and id >= uuid_v7_floor($2) and id < uuid_v7_floor($3)
     order by row`,
    [of, `${month}-01T00:00:00Z`, `${year}-04-01T00:00:00Z`],
  );
  return rows.map(({ row }) => row);
}

export const hasTable = async (name = `events_${month.replace('-', '_')}`): Promise<boolean> =>
  (await pool.query('select to_regclass($1) is not null as found', [name])).rows[0].found;

export const states = async (): Promise<string[]> =>
  (
    await pool.query(
      "select state from archive_files where month = ($1 || '-01')::date order by workspace_id, kind, id",
      [month],
    )
  ).rows.map(({ state }) => state);

export const restore = (store: ObjectStore, days = 30) =>
  restoreMonth(withStore(store), { workspaceId, month, days });

/** Wraps the store so that the process seems to be killed at a certain call. */
export const dying = (store: ObjectStore, call: 'put' | 'get', times: number): ObjectStore => {
  let left = times;
  const die = () => {
    left -= 1;
    if (left <= 0) throw new Error('killed');
  };
  return {
    ...store,
    async put(...given) {
      const written = await store.put(...given);
      if (call === 'put') die();
      return written;
    },
    async get(...given) {
      if (call === 'get') die();
      return store.get(...given);
    },
  };
};
