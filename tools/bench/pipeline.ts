import type pg from 'pg';
import type { BodyOptions, Spread } from '../load/bodies.ts';
import { runLoad } from '../load/run-load.ts';
import type { TrafficKind } from '../load/traffic.ts';
import type { Contender } from './contender.ts';
import { costBetween, readCpu } from './cpu.ts';
import type { Environment } from './environment.ts';
import type { Figure } from './figure.ts';
import { trickleIdentity } from './identity-trickle.ts';
import { readPeaks, resetPeaks } from './peak-memory.ts';

export interface Shape {
  objects: BodyOptions['objects'];
  eventNames?: number;
  kinds?: readonly TrafficKind[];
  /** Keys of the workspaces that send, in turn; by default the contender's own key. */
  keys?: readonly string[];
  spread?: Spread;
  connections: number;
  users: number;
  seconds: number;
  /** Maximum requests, for a pipeline that accepts much faster than it applies. */
  maxRequests: number;
  /** Whether 100 identity requests a second are sent meanwhile. */
  withIdentity?: boolean;
}

/** Share of objects that are deliberately invalid. */
const BAD_SHARE = 0.01;

/** Returns the bytes of write-ahead log so far, of the whole server. */
const walSoFar = `select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8 as bytes`;

/** Maximum seconds for applying all accepted objects. A pipeline that takes longer fails the bench. */
const DRAIN_SECONDS = 180;

/**
 * Sends traffic and measures from the first request until all accepted objects are in Postgres.
 * @throws {Error} if there are too few or too many rows, or requests failed
 */
export async function measurePipeline(
  contender: Contender,
  environment: Environment,
  shape: Shape,
): Promise<Figure> {
  const { target, key, observer } = contender;
  const before = await contender.stored();
  const trickle = shape.withIdentity && trickleIdentity(contender, `trickle-${Date.now()}`);
  const pids = { ...contender.pids, postgres: environment.postgresPid, redis: environment.redisPid };
  resetPeaks(contender.pids);
  const walBefore = await readWal(contender.pool);
  const cpuBefore = readCpu(pids);
  const result = await runLoad({
    ...shape,
    target,
    key,
    observer,
    badShare: BAD_SHARE,
    rate: 0,
    probe: false,
    drainSeconds: DRAIN_SECONDS,
  });
  const identityRequests = trickle ? await trickle.stop() : 0;
  const { tally, accept, seconds, generatorCores } = result;
  const applied = result.applied!;
  const cpuAfter = readCpu(pids);
  const walAfter = await readWal(contender.pool);
  const after = await contender.stored();

  const rows =
    after.attributes - before.attributes + after.events - before.events + after.purchases - before.purchases;
  const failed = [...tally.errors.keys()].filter((kind) => !kind.startsWith('object refused'));
  if (rows !== tally.accepted || failed.length > 0) {
    throw new Error(
      `${contender.name}: ${tally.accepted} accepted, ${rows} stored, errors: ${failed.join('; ')}`,
    );
  }
  return {
    value: rows / applied.seconds,
    unit: '/s',
    detail: {
      rows,
      seconds: applied.seconds,
      accepted_per_second: tally.accepted / seconds,
      accept_p50_ms: accept?.p50 ?? 0,
      accept_p99_ms: accept?.p99 ?? 0,
      wal_bytes_per_row: Math.round((walAfter - walBefore) / rows),
      ...readPeaks(contender.pids),
      ...(trickle && { identity_requests: identityRequests }),
      ...costBetween(cpuBefore, cpuAfter, generatorCores * seconds, { rows, seconds: applied.seconds }),
    },
  };
}

async function readWal(pool: pg.Pool): Promise<number> {
  const { rows } = await pool.query<{ bytes: number }>(walSoFar);
  return rows[0]!.bytes;
}
