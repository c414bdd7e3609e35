import { type Comparison, seedComparison, startComparison } from './comparison.ts';
import type { Contender } from './contender.ts';
import type { Environment } from './environment.ts';
import { generateNaiveClient } from './naive/client.ts';
import { startOurs } from './ours.ts';
import { seedUsers } from './seed.ts';
import type { Size } from './size.ts';
import { addTenants, type Tenants } from './tenants.ts';
import { createTurns } from './turns.ts';
import { warmUp } from './warm-up.ts';

/** Redis databases. The queues of the other pipelines have other names and use the database of `ours`. */
const OURS = 0;
const TWO_WORKERS = 1;
const TWO_LANES = 2;
const FOUR_LANES = [3, 4];
const FIRST_SCRATCH = 5;
const TENANTS = 12;
const TWO_SHARDS = [16, 17];
const STREAMED = 13;
const TRACED = { '0.01': 14, '1': 15 };

type Settings = Record<string, string>;

/**
 * The pipelines that the rows are measured on. Each is started, with its users, when the first row requests
 * it, and runs until a row requests another one.
 */
export interface Fleets {
  /** One `web` and one `worker` on Redis. */
  ours(): Promise<Contender>;
  naive(): Promise<Contender>;
  /** Pipeline with a job per request and one statement per job, with the rows of tools/bench/request-jobs. */
  requestJobs(rows: 'few' | 'all'): Promise<Contender>;
  /** `ours` with the queue in Postgres. */
  embedded(): Promise<Contender>;
  /** `ours` with a second `worker`. */
  twoWorkers(): Promise<Contender>;
  /** `ours` with `LANES=2`. */
  twoLanes(): Promise<Contender>;
  /** `ours` with `LANES=4` and the given number of workers. */
  fourLanes(workers: number): Promise<Contender>;
  /** `ours` with tracing of the given share of the requests. */
  traced(share: keyof typeof TRACED): Promise<Contender>;
  /** `ours` with a sync process that delivers all objects to two webhooks. */
  streamed(): Promise<Contender>;
  /** `ours` with many workspaces. */
  tenants(): Promise<Tenants>;
  /**
   * `ours` with two shards and the given number of workers. The first workspace is in one shard, the others
   * in the other.
   */
  twoShards(workers: number): Promise<Tenants>;
  /** `ours` without users, on tables that the rows of one purpose may fill. */
  scratch(purpose: string): Promise<Contender>;
  stop(): Promise<void>;
}

/** @param overrides settings of Penstock's own processes */
export function createFleets(environment: Environment, overrides: Settings, size: Size): Fleets {
  // A machine that is briefly busy must not end a measurement with a 503.
  const settings = { QUEUE_TIMEOUT_MS: '5000', ...overrides };
  const started: Promise<Contender>[] = [];
  const turns = createTurns();
  const once = <Started extends Contender>(start: () => Promise<Started>) => {
    let fleet: Promise<Started> | undefined;
    return async () => {
      if (!fleet) {
        turns.pause();
        fleet = start();
        started.push(fleet);
      }
      const contender = await fleet;
      await turns.resume(contender);
      return contender;
    };
  };
  const warm = async (contender: Contender) => {
    await seedUsers(contender, size.users);
    await warmUp(contender, environment, size, Number.POSITIVE_INFINITY);
    return contender;
  };
  const compared = async (comparison: Comparison, maxObjects: number) => {
    const contender = await startComparison(environment, comparison);
    await seedComparison(contender.databaseUrl, size.users);
    await warmUp(contender, environment, size, maxObjects);
    return contender;
  };
  const jobsWith = (rows: 'few' | 'all') =>
    once(() =>
      compared(
        { name: `request_jobs_${rows}`, folder: 'request-jobs', env: { ROWS: rows } },
        Number.POSITIVE_INFINITY,
      ),
    );
  const requestJobs = { few: jobsWith('few'), all: jobsWith('all') };
  const scratches = new Map<string, () => Promise<Contender>>();
  const scratch = (name: string) => {
    let start = scratches.get(name);
    if (!start) {
      const redis = FIRST_SCRATCH + scratches.size;
      start = once(() => startOurs(environment, settings, { name, redis }));
      scratches.set(name, start);
    }
    return start();
  };
  const fourLanes = FOUR_LANES.map((redis, index) =>
    once(async () => {
      const placement = { name: `four_lanes_${index + 1}`, redis, workers: index + 1 };
      return warm(await startOurs(environment, { ...settings, LANES: '4' }, placement));
    }),
  );
  // With two workers, each of them has one of the two lanes.
  const twoShards = TWO_SHARDS.map((redis, index) =>
    once(async () => {
      const placement = { name: `two_shards_${index + 1}`, redis, workers: index + 1 };
      const contender = await startOurs(environment, { ...settings, SHARDS: '2', LANES: '1' }, placement);
      const tenants = await addTenants(contender, size);
      // Update before any process has read the shards.
      await tenants.pool.query(`update workspaces set shard = (name <> 'default')::integer`);
      return tenants;
    }),
  );
  const traced = (share: keyof typeof TRACED) =>
    once(async () => {
      const tracing = {
        OTEL_EXPORTER_OTLP_ENDPOINT: await environment.collector(),
        OTEL_TRACES_SAMPLER: 'parentbased_traceidratio',
        OTEL_TRACES_SAMPLER_ARG: share,
      };
      const placement = { name: `traced_${share.replace('.', '_')}`, redis: TRACED[share] };
      return warm(await startOurs(environment, { ...settings, ...tracing }, placement));
    });
  const tracedFleets = { '0.01': traced('0.01'), '1': traced('1') };
  return {
    scratch,
    traced: (share) => tracedFleets[share](),
    ours: once(async () => warm(await startOurs(environment, settings, { name: 'ours', redis: OURS }))),
    streamed: once(async () => {
      const streamsTo = await environment.collector();
      return warm(await startOurs(environment, settings, { name: 'streamed', redis: STREAMED, streamsTo }));
    }),
    tenants: once(async () => {
      const placement = { name: 'tenants', redis: TENANTS };
      return addTenants(await startOurs(environment, settings, placement), size);
    }),
    twoShards: (workers) => twoShards[workers - 1]!(),
    embedded: once(async () =>
      warm(await startOurs(environment, { ...settings, LANES: '1' }, { name: 'embedded' })),
    ),
    twoWorkers: once(async () =>
      warm(await startOurs(environment, settings, { name: 'two_workers', redis: TWO_WORKERS, workers: 2 })),
    ),
    twoLanes: once(async () =>
      warm(
        await startOurs(environment, { ...settings, LANES: '2' }, { name: 'two_lanes', redis: TWO_LANES }),
      ),
    ),
    fourLanes: (workers) => fourLanes[workers - 1]!(),
    naive: once(async () => {
      generateNaiveClient();
      return compared({ name: 'naive', folder: 'naive' }, 500);
    }),
    requestJobs: (rows) => requestJobs[rows](),
    async stop() {
      turns.end();
      for (const fleet of started.toReversed()) await fleet.then((contender) => contender.stop());
    },
  };
}
