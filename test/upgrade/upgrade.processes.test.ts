import { beforeAll, describe, expect, test } from 'vitest';
import { newId } from '../../src/platform/ids.ts';
import { fenceEntries } from '../../src/queue/pack.ts';
import { encodeEnvelope } from '../../src/queue/wire.ts';
import { compile } from '../../src/schemas/compile.ts';
import { startCircles } from '../../tools/chaos/load/circles.ts';
import { startLoad } from '../../tools/chaos/load/load.ts';
import { Scene } from '../../tools/chaos/scene.ts';
import type { Traffic } from '../../tools/chaos/traffic.ts';
import { penstock } from '../admin/penstock.ts';
import { createBareDatabase, startRedis } from '../setup/fixtures.ts';
import { eitherBackend, type Fleet } from '../setup/fleet.ts';
import { startProcess } from '../setup/processes.ts';
import { previous } from './migration-rules.ts';
import { buildPrevious, previousMigrations, readPrevious, whyNoHistory } from './previous.ts';

const reason = whyNoHistory();
if (reason) process.stderr.write(`${reason}\n`);

/** About 20 requests a second, each of three users with about three objects. */
const RATE = 180;

/** Eight processes start, one after the other, on a machine that is busy with other tests. */
const PATIENCE_MS = 300_000;

describe.skipIf(reason)(`together with release ${previous.version}`, () => {
  let old: string;
  beforeAll(() => {
    old = buildPrevious();
  });

  test('previous.json describes that release correctly', () => {
    expect(previousMigrations().at(-1)).toBe(previous.migration);
    expect(JSON.parse(readPrevious('package.json')).version).toBe(previous.version);
    const wire = previousFile('src/queue/wire.ts');
    expect(Number(/export const READS = (\d+)/.exec(wire)?.[1] ?? 1)).toBe(previous.reads);
  });

  test('G3: its workers recognize all fence entries of this release, and every workspace waits', () => {
    const [, text] = /export const fenceSchema = (\{.*?\n\}) as const/s.exec(
      previousFile('src/jobs/catalog.ts'),
    )!;
    const readSchema = new Function('uuid', 'text', `return ${text}`) as (...parts: object[]) => object;
    const isFence = compile(readSchema({ type: 'string', format: 'uuid' }, { type: 'string' }));
    const envelope = {
      requests: [
        { request_id: newId(), workspace_id: newId(), accepted_at: '2026-01-02T03:04:05Z', count: 0 },
      ],
      objects: [],
    };
    for (const entry of fenceEntries(newId(), [2, 0, 3], envelope)) {
      const { fence } = encodeEnvelope(entry.envelope);
      expect(isFence(fence)).toBe(true);
      expect(fence!.lanes).toContain(entry.lane);
      expect(fence!.lanes[0] === entry.lane).toBe(entry.id === fence!.id);
    }
  });

  test.each(eitherBackend)(
    'G1, G2, G3: upgrade and rollback under load apply each object once, in order; queue on %s',
    async (backend) => {
      const { url } = await createBareDatabase();
      const scene = new Scene({
        backend,
        createDatabase: async () => ({ url }),
        short: true,
        seed: 7,
        say() {},
      });
      const redis = backend === 'redis' ? await startRedis() : undefined;
      const release = async (dist: string) => {
        const env = { DATABASE_URL: url, ...(redis && { REDIS_URL: redis.url }), LOG_LEVEL: 'info' };
        const { exit, log } = startProcess(`${dist}/src/release.js`, env);
        expect(await exit, JSON.stringify(log)).toMatchObject({ code: 0 });
      };
      await release(old);
      const fleet = await scene.startFleet({ url, redis, edges: 0, workers: 0 });
      const [oldEdge, oldWorker] = await Promise.all([
        fleet.startEdge(undefined, {}, old),
        fleet.startWorker({}, old),
      ]);
      const load = startLoad(fleet, { clients: 4, rate: RATE });
      const circles = await startCircles(fleet, { seed: scene.seed, pause: 60 });
      const more = () => load.more(100);
      await more();

      // Upgrade: tables, workers, web.
      await release('dist');
      await more();
      const worker = await fleet.startWorker();
      await more();
      await fleet.end(oldWorker, 'SIGTERM');
      await more();
      const edge = await fleet.startEdge();
      await more();
      await fleet.end(oldEdge, 'SIGTERM');
      await more();

      // Rollback: web, then the workers, which read the jobs of this release.
      const edgeAgain = await fleet.startEdge(undefined, {}, old);
      await more();
      await fleet.end(edge, 'SIGTERM');
      await fleet.startWorker({}, old);
      await more();
      await fleet.end(worker, 'SIGTERM');
      await more();
      await waitUntilApplied(scene, fleet, { load, circles });
      expect(fleet.edges).toEqual([edgeAgain]);
      await fleet.stop();
    },
    PATIENCE_MS,
  );

  test(
    'G1, G2, G3: jobs of an older web are applied first after a change to several shards',
    async () => {
      const { url } = await createBareDatabase();
      const redis = await startRedis();
      const scene = new Scene({
        backend: 'redis',
        createDatabase: async () => ({ url }),
        short: true,
        seed: 7,
        say() {},
      });
      const env = { DATABASE_URL: url, REDIS_URL: redis.url, LOG_LEVEL: 'info' };
      const released = async (dist: string) =>
        expect(await startProcess(`${dist}/src/release.js`, env).exit).toMatchObject({ code: 0 });
      await released(old);
      const fleet = await scene.startFleet({ url, redis, edges: 0, workers: 0 });
      const load = startLoad(fleet, { clients: 4, rate: RATE });
      const oldEdge = await fleet.startEdge(undefined, {}, old);
      await load.more(100);
      await fleet.end(oldEdge, 'SIGTERM');
      await released('dist');
      const oneShard = await fleet.startEdge();
      await load.more(50);
      await fleet.end(oneShard, 'SIGTERM');
      const { lanes } = JSON.parse((await penstock(['queue', 'show', '--json'], fleet.env)).stdout);
      const change = await penstock(['queue', 'set-lanes', String(lanes), '--shards', '3'], fleet.env);
      expect(change).toMatchObject({ code: 0 });
      // The fleet's status is read for this number of lanes.
      fleet.env.SHARDS = '3';
      await fleet.startWorker();
      await fleet.startEdge();
      await load.more(100);
      await waitUntilApplied(scene, fleet, { load });
      await fleet.stop();
    },
    PATIENCE_MS,
  );
});

function previousFile(file: string): string {
  try {
    return readPrevious(file);
  } catch {
    return '';
  }
}

async function waitUntilApplied(
  scene: Scene,
  fleet: Fleet,
  { load, circles }: Pick<Traffic, 'load'> & Partial<Pick<Traffic, 'circles'>>,
): Promise<void> {
  await scene.waitUntilApplied(fleet, { load, ...(circles && { circles }) });
  expect(scene.describeFindings()).toEqual([]);
  expect(scene.sums[0]).toMatchObject({ lost: 0, doubled: 0, outOfOrder: 0 });
  expect(scene.sums[0]!.applied).toBe(scene.sums[0]!.acknowledged);
  expect(scene.figures.filter(({ passed }) => !passed)).toEqual([]);
  const { rows } = await fleet.pool.query('select reason from dead_letters');
  expect(rows).toEqual([]);
  const odd = [...load.journal.statuses()].filter(([status]) => ![201, 503].includes(status));
  expect(odd).toEqual([]);
}
