import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { newId } from '../../src/platform/ids.ts';
import { migrate } from '../../src/processes/migrate.ts';
import { openPool, type Pool } from '../../src/store/database.ts';
import { distribute } from '../../src/store/distribute.ts';
import { isPassed, readHorizon, watchHorizon } from '../../src/store/horizon.ts';
import { createDestination } from '../../src/store/stream-destinations.ts';
import { readLog } from '../../src/store/stream-log.ts';
import { type Certificate, makeCertificate } from '../setup/certificate.ts';
import { citusUrl, createCitusDatabase, type Node } from '../setup/citus.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { type StoreProxy, startProxy } from '../setup/proxy.ts';
import { createWorkspace, type TestWorkspace } from '../setup/workspace.ts';
import { email } from '../subscription/scene.ts';
import { applyBatch } from '../workers/apply-batch.ts';
import { deliver, event } from '../workers/batch.ts';

describe.skipIf(!citusUrl)('on the Citus of CITUS_URL', () => {
  let database: Awaited<ReturnType<typeof createCitusDatabase>>;
  let pool: Pool;
  let workspace: TestWorkspace;
  /** One proxy for each node. */
  const proxies: StoreProxy[] = [];
  let certificate: Certificate;

  beforeAll(async () => {
    certificate = makeCertificate();
    database = await createCitusDatabase({ addressOf: behindProxy });
    pool = await distributed(database.url);
    workspace = await createWorkspace(pool);
    await createDestination(pool, {
      ...{ workspaceId: workspace.id, id: newId(), name: 'all', kind: 'webhook', secret: null },
      settings: { url: 'http://127.0.0.1:9/' },
    });
  });
  afterAll(async () => {
    await pool.end();
    // Before the proxies end, by which the nodes reach each other.
    await database.drop();
  });

  async function behindProxy({ nodename, nodeport }: Node): Promise<Node> {
    const proxy = await startProxy(`postgres://${nodename}:${nodeport}/`, { certificate });
    proxies.push(proxy);
    const { hostname, port } = new URL(proxy.url);
    return { nodename: hostname, nodeport: Number(port) };
  }

  /**
   * Changes a subscription state in a transaction of two phases and blocks COMMIT PREPARED on the way to its
   * node: the
   * coordinator has committed, the node has not.
   * The block ends with the test at the latest, because a prepared transaction blocks every later database on
   * the node.
   * @returns a function that removes the block and waits until the change has taken effect
   */
  async function commitLate(address: string): Promise<() => Promise<void>> {
    onTestFinished(() => Promise.all(proxies.map((proxy) => proxy.comeBack())).then(() => {}));
    for (const proxy of proxies) proxy.holdBack('COMMIT PREPARED');
    const applied = applyBatch(pool, [deliver(workspace, [email(address, { state: 'unsubscribed' })])]);
    await waitUntil(() => proxies.some((proxy) => proxy.isWaitedFor()), { what: 'the second phase' });
    expect(await underWayAtCoordinator()).toBe(0);
    return async () => {
      await Promise.all(proxies.map((proxy) => proxy.comeBack()));
      expect(await applied).toMatchObject({ kind: 'applied' });
    };
  }

  /** Counts the open transactions that have written on the coordinator. */
  async function underWayAtCoordinator(): Promise<number> {
    const { rows } = await pool.query(`
      select count(*)::integer as number from pg_stat_activity
      where pg_stat_activity.datname = current_database() and pg_stat_activity.backend_xid is not null`);
    return rows[0].number;
  }

  test('G2: the horizon waits for a message whose node commits after the coordinator', async () => {
    expect(await applyBatch(pool, [deliver(workspace, [event('ann')])])).toMatchObject({
      kind: 'applied',
    });
    const watch = watchHorizon(pool);
    const lookUntil = (id: bigint) =>
      waitUntil(async () => (await watch.check()) !== undefined && BigInt(watch.horizon()) >= id, {
        what: `the horizon at ${id}`,
      });
    const before = await lastId();
    await lookUntil(before);
    const letGo = await commitLate('ann@x.com');
    const id = await lastId();
    expect(id).toBeGreaterThan(before);
    // Two polls are enough to recognize transactions that have ended.
    for (let checks = 0; checks < 3; checks++) await watch.check();
    expect(BigInt(watch.horizon())).toBeLessThan(id);
    await letGo();
    await lookUntil(id);
    const range = { after: String(before), horizon: watch.horizon(), limit: 10, entries: 10 };
    expect(await readLog(pool, workspace.id, range)).toMatchObject([{ id: String(id), kinds: 's' }]);
  });

  test('G2: a tombstone waits for a transaction whose node commits after the coordinator', async () => {
    const letGo = await commitLate('bob@x.com');
    const horizon = await readHorizon(pool);
    expect(await isPassed(pool, horizon)).toBe(false);
    await letGo();
    await waitUntil(() => isPassed(pool, horizon), { what: 'the horizon to be passed' });
  });

  /** Returns the last id that the log of streams has assigned, visible or not. */
  async function lastId(): Promise<bigint> {
    const { rows } = await pool.query('select last_value from stream_log_id');
    return BigInt(rows[0].last_value);
  }
});

test.skipIf(!citusUrl)(
  'G2: the horizon waits for an open transaction in shards of the coordinator itself',
  async () => {
    const pool = await distributed((await createCitusDatabase({ alone: true })).url);
    const { id } = await createWorkspace(pool);
    const tx = await pool.connect();
    await tx.query('begin');
    await tx.query('insert into workspace_places (workspace_id) values ($1)', [id]);
    const horizon = await readHorizon(pool);
    expect(await isPassed(pool, horizon)).toBe(false);
    await tx.query('commit');
    tx.release();
    await waitUntil(() => isPassed(pool, horizon), { what: 'the horizon to be passed' });
    await pool.end();
  },
);

test.skipIf(citusUrl)('LEFT OUT: no Citus is tested, because CITUS_URL is not set', () => {});

async function distributed(url: string): Promise<Pool> {
  await migrate(url);
  const plain = openPool(url, 1);
  await distribute(plain).finally(() => plain.end());
  return openPool(url, 4);
}
