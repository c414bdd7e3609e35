import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import { Counter, collectDefaultMetrics, Gauge, Registry } from 'prom-client';
import type { Dependency } from '../checks/readings.ts';
import type { Config } from '../platform/config.ts';
import { packageVersion } from '../platform/files.ts';
import { tracing } from '../platform/tracing.ts';
import type { LaneAge } from '../queue/oldest.ts';
import type { ProcessName } from '../store/processes.ts';

/** Gauges of prom-client whose names end like those of counters. */
const MISNAMED = ['handles', 'requests', 'resources'].map((what) => `nodejs_active_${what}_total`);

/** Milliseconds between two samples of the event loop's delay. Each sample wakes an idle process. */
export const LOOP_SAMPLE_MS = 50;

/**
 * Creates a registry with the metrics of every process: its release, and the defaults of prom-client (memory,
 * processor, event loop). Names follow Prometheus's conventions: base units, one unit per name, `_total` for counters
 * of this process.
 *
 * @param isAlone whether the process has no other registry with the default metrics
 */
export function createRegistry(name: ProcessName, isAlone = true): Registry {
  const registry = new Registry();
  if (isAlone) collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: LOOP_SAMPLE_MS });
  for (const misnamed of MISNAMED) registry.removeSingleMetric(misnamed);
  new Gauge({
    name: 'penstock_build_info',
    help: 'Always 1; the labels have the process and its release.',
    labelNames: ['process', 'version', 'node_version'],
    registers: [registry],
  }).set({ process: name, version: packageVersion, node_version: process.version }, 1);
  return registry;
}

/** Adds a gauge for each dependency: 1 while it is available. */
export function addDependencyMetric(registry: Registry, missing: () => string[]): void {
  const names: Dependency[] = ['postgres', 'migrations', 'redis', 'queue', 'producer'];
  new Gauge({
    name: 'penstock_dependency_up',
    help: '1 while this process can use the dependency: postgres, migrations, redis, queue (in Postgres), producer.',
    labelNames: ['dependency'],
    registers: [registry],
    collect() {
      const lacking = missing();
      for (const dependency of names) this.set({ dependency }, lacking.includes(dependency) ? 0 : 1);
    },
  });
}

/** Adds a gauge with the difference between the clock of Postgres and the clock of this process. */
export function addClockMetric(registry: Registry, skew: () => number | undefined): void {
  const help =
    'Seconds by which the clock of Postgres is ahead of the clock of this process (negative: behind), without the round trip.';
  addGauge(registry, { name: 'penstock_clock_skew_seconds', help }, skew);
}

/** Adds a counter of spans by outcome, if tracing is on. */
export function addSpanMetric(
  registry: Registry,
  counts: Record<string, number> | undefined = tracing?.counts(),
): void {
  if (!counts) return;
  new Counter({
    name: 'penstock_spans_total',
    help: 'Spans by outcome: exported, failed (the collector did not accept them), dropped (too many were waiting).',
    labelNames: ['outcome'],
    registers: [registry],
    collect() {
      this.reset();
      for (const [outcome, count] of Object.entries(counts)) this.inc({ outcome }, count);
    },
  });
}

/** Adds gauges with the age of the oldest envelope, by lane and by shard. They have no values while the ages are unknown. */
export function addOldestMetric(registry: Registry, ages: () => LaneAge[] | undefined): void {
  new Gauge({
    name: 'penstock_queue_oldest_seconds',
    help: 'Age in seconds of the oldest job that waits or is being applied, by lane; absent while unknown.',
    labelNames: ['lane'],
    registers: [registry],
    collect() {
      this.reset();
      for (const { lane, seconds } of ages() ?? []) this.set({ lane }, seconds);
    },
  });
  new Gauge({
    name: 'penstock_queue_stuck_seconds',
    help: 'Seconds for which a lane has not moved, or for which a job of a workspace without a large backlog has waited in it, by lane. 0 while the oldest job of the lane is younger than 30 s.',
    labelNames: ['lane'],
    registers: [registry],
    collect() {
      this.reset();
      for (const { lane, stuckSeconds } of ages() ?? []) this.set({ lane }, stuckSeconds);
    },
  });
  new Gauge({
    name: 'penstock_queue_shard_oldest_seconds',
    help: 'Age in seconds of the oldest job that waits or is being applied, by shard (a set of lanes).',
    labelNames: ['shard'],
    registers: [registry],
    collect() {
      this.reset();
      const oldest = new Map<number, number>();
      for (const { shard, seconds } of ages() ?? [])
        oldest.set(shard, Math.max(seconds, oldest.get(shard) ?? 0));
      for (const [shard, seconds] of oldest) this.set({ shard }, seconds);
    },
  });
}

/** Maximum number of values of a label with their own series. */
const MAX_VALUES = 50;

/** Replaces all further values. */
const OTHER = 'other';

/** Returns a function that limits the values of a label. The first values keep their names, and all others become OTHER. */
export function boundLabel(limit = MAX_VALUES): (value: string | undefined) => string {
  const named = new Set<string>();
  return (value = OTHER) => {
    if (named.has(value)) return value;
    if (named.size >= limit) return OTHER;
    named.add(value);
    return value;
  };
}

/** Splits a list into its largest elements and all others. */
export function largest<T>(list: T[], sizeOf: (one: T) => number, limit = MAX_VALUES): [T[], T[]] {
  const sorted = [...list].sort((one, other) => sizeOf(other) - sizeOf(one));
  return [sorted.slice(0, limit), sorted.slice(limit)];
}

/** Adds a gauge that has a value only while it is known. Otherwise it is NaN and not 0. */
export function addGauge(
  registry: Registry,
  { name, help }: { name: string; help: string },
  read: () => number | undefined,
): void {
  new Gauge({
    name,
    help,
    registers: [registry],
    collect() {
      this.set(read() ?? Number.NaN);
    },
  });
}

const SCHEME = /^bearer +/i;

/**
 * Creates the check of requests for /metrics. A caller must send the token as `Authorization: Bearer …`, as Prometheus
 * does. With an empty token, everyone who can reach the port may read the metrics.
 *
 * @returns a function that checks an Authorization header in constant time
 */
export function createMetricsGuard(token: string): (header: string | undefined) => boolean {
  if (token === '') return () => true;
  const wanted = digest(token);
  return (header) =>
    header !== undefined &&
    SCHEME.test(header) &&
    timingSafeEqual(digest(header.replace(SCHEME, '').trim()), wanted);
}

const OWN_ADDRESS = /^(?:::ffff:)?127\.|^::1$/;

/** Headers that proxies add to forwarded requests. */
const FORWARDED = ['forwarded', 'x-forwarded-for', 'x-real-ip', 'via'];

/**
 * Creates the check of requests for the addresses of the fleet's processes, which would reveal the network. The caller
 * must send the token. With an empty token, only this machine may read them: from a loopback address, and not through a
 * local proxy. A proxy may add no header, so if a setting implies a proxy, requests without a token are refused.
 */
export function createTargetsGuard(
  token: string,
  { TRUST_PROXY_HOPS, PUBLIC_URL }: Pick<Config, 'TRUST_PROXY_HOPS' | 'PUBLIC_URL'>,
): (request: Pick<IncomingMessage, 'headers' | 'socket'>) => boolean {
  const mayRead = createMetricsGuard(token);
  if (token !== '') return ({ headers }) => mayRead(headers.authorization);
  if (TRUST_PROXY_HOPS > 0 || PUBLIC_URL !== '') return () => false;
  return ({ headers, socket }) =>
    OWN_ADDRESS.test(socket.remoteAddress ?? '') &&
    !FORWARDED.some((name) => name in headers) &&
    isAddressOrLocalhost(headers.host ?? '');
}

/**
 * Returns whether a Host header has an address or localhost. A page of another site that reaches this machine by DNS
 * rebinding sends the name of its own site.
 */
function isAddressOrLocalhost(host: string): boolean {
  if (!URL.canParse(`http://${host}`)) return false;
  const name = new URL(`http://${host}`).hostname.replace(/^\[(.*)\]$/, '$1');
  return name === 'localhost' || isIP(name) !== 0;
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
