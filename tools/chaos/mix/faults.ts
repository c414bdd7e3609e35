import { setTimeout as sleep } from 'node:timers/promises';
import { type Backend, backends, type Fleet } from '../../../test/setup/fleet.ts';
import { startRedis, type TestRedis } from '../../../test/setup/redis.ts';
import { pick } from '../../load/random.ts';
import type { startOwnPostgres } from '../own-postgres.ts';

/** The processes and stores that a fault may break. */
export interface Target {
  fleet: Fleet;
  postgres: Awaited<ReturnType<typeof startOwnPostgres>>;
  /** The current Redis, which is a new process after each kill. */
  redis: TestRedis | undefined;
  random: () => number;
}

/** A fault that begins and ends while the load is running. */
export interface MixedFault {
  /** Number in the list of faults. */
  number: number;
  name: string;
  backends: readonly Backend[];
  /** Resolves when the fault is over and the broken part is available again. */
  strike(target: Target): Promise<void>;
}

const redisOnly = ['redis'] as const;

export const mixedFaults: MixedFault[] = [
  {
    number: 1,
    name: 'kill -9 of a worker',
    backends,
    async strike({ fleet, random }) {
      await fleet.end(pick(random, fleet.workers));
      await fleet.startWorker();
    },
  },
  {
    number: 1,
    name: 'a worker frozen for 1–6 s',
    backends,
    async strike({ fleet, random }) {
      const { pid } = pick(random, fleet.workers);
      await freeze(pid, 1000 + random() * 5000);
    },
  },
  {
    number: 2,
    name: 'kill -9 of an edge',
    backends,
    async strike({ fleet, random }) {
      const victim = pick(random, fleet.edges);
      await fleet.end(victim);
      await fleet.startEdge(victim.port);
    },
  },
  {
    number: 3,
    name: 'SIGTERM to a worker and an edge',
    backends,
    async strike({ fleet, random }) {
      await fleet.end(pick(random, fleet.workers), 'SIGTERM');
      await fleet.startWorker();
      await fleet.end(pick(random, fleet.edges), 'SIGTERM');
      await fleet.startEdge();
    },
  },
  {
    number: 4,
    name: 'kill -9 of Redis, back after 0–3 s',
    backends: redisOnly,
    async strike(target) {
      const { port, dir } = target.redis!;
      await target.redis!.kill();
      await sleep(target.random() * 3000);
      target.redis = await startRedis({ port, dir });
    },
  },
  {
    number: 5,
    name: 'Redis frozen for 0.5–4 s',
    backends: redisOnly,
    strike: ({ redis, random }) => freeze(redis!.pid, 500 + random() * 3500),
  },
  {
    number: 8,
    name: 'kill -9 of a Postgres backend',
    backends,
    async strike({ fleet }) {
      const { rows } = await fleet.pool.query<{ pid: number }>(
        `select pid from pg_stat_activity
          where datname = current_database() and application_name like 'worker-%' limit 1`,
      );
      if (rows[0]) process.kill(rows[0].pid, 'SIGKILL');
    },
  },
  {
    number: 8,
    name: 'all connections to Postgres terminated',
    backends,
    async strike({ fleet }) {
      await fleet.pool.query(
        `select pg_terminate_backend(pid) from pg_stat_activity
          where datname = current_database() and pid <> pg_backend_pid()`,
      );
    },
  },
  {
    number: 8,
    name: 'immediate stop of Postgres, back after 0–5 s',
    backends,
    async strike({ postgres, random }) {
      await postgres.stopImmediately();
      await sleep(random() * 5000);
      await postgres.startAgain();
    },
  },
];

async function freeze(pid: number, milliseconds: number): Promise<void> {
  process.kill(pid, 'SIGSTOP');
  await sleep(milliseconds);
  process.kill(pid, 'SIGCONT');
}
