import { runLoad } from '../load/run-load.ts';
import type { Contender } from './contender.ts';
import type { Environment } from './environment.ts';
import { measurePipeline } from './pipeline.ts';
import { CONNECTIONS_OF_75, type Size } from './size.ts';

/** Milliseconds between two probes. */
export const PROBE_EVERY = 20;

/**
 * Number of connections, which is enough that a request finds a free one when it is due, even beyond full
 * load.
 */
const CONNECTIONS = 64;

const DRAIN_SECONDS = 60;

/** Results of an offered load. Times are in milliseconds. */
export interface Offered {
  /** Objects that were accepted and applied. */
  rows: number;
  offered_per_second: number;
  /** Rate from the first request until all objects were in Postgres. */
  applied_per_second: number;
  accept_p50_ms: number;
  accept_p99_ms: number;
  /** Time from the response until a profile can be read. */
  readable_p50_ms: number;
  readable_p99_ms: number;
}

/** Returns the objects per second that a pipeline applies at full load, in requests of 75. */
export async function measureFullRate(
  contender: Contender,
  environment: Environment,
  size: Size,
): Promise<number> {
  const { value } = await measurePipeline(contender, environment, {
    ...size,
    objects: 75,
    connections: CONNECTIONS_OF_75,
    maxRequests: Number.POSITIVE_INFINITY,
  });
  return value;
}

/**
 * Sends a steady rate in requests of 75 objects, and probes one profile after the other meanwhile.
 * @throws {Error} if requests failed, or accepted objects are not applied a minute later
 */
export async function measureOffered(
  { target, key, observer, name }: Contender,
  { users, seconds }: Size,
  objectsPerSecond: number,
): Promise<Offered> {
  const { accept, applied, probes, tally } = await runLoad({
    target,
    key,
    observer: { ...observer, probeEvery: PROBE_EVERY },
    objects: 75,
    badShare: 0.01,
    users,
    connections: CONNECTIONS,
    rate: objectsPerSecond / 75,
    seconds,
    maxRequests: Number.POSITIVE_INFINITY,
    probe: true,
    drainSeconds: DRAIN_SECONDS,
  });
  const readable = probes?.readable;
  if (!accept || !readable) throw new Error(`nothing was measured: ${probes?.failure ?? 'no answer'}`);
  const failed = [...tally.errors.keys()].filter((kind) => !kind.startsWith('object refused'));
  if (failed.length > 0) throw new Error(`${name}: ${failed.join('; ')}`);
  if (!applied!.complete) throw new Error(`${name}: ${applied!.objects} applied of ${tally.accepted}`);
  return {
    rows: tally.accepted,
    offered_per_second: objectsPerSecond,
    applied_per_second: tally.accepted / applied!.seconds,
    accept_p50_ms: accept.p50,
    accept_p99_ms: accept.p99,
    readable_p50_ms: readable.p50,
    readable_p99_ms: readable.p99,
  };
}
