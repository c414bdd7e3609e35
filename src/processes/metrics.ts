import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import { Counter, collectDefaultMetrics, Gauge, Registry } from 'prom-client';
import type { Config } from '../platform/config.ts';
import { packageVersion } from '../platform/files.ts';
import { tracing } from '../platform/tracing.ts';
import type { ProcessName } from '../store/processes.ts';
import type { Missing } from './dependencies.ts';

/** Gauges of prom-client that are named as counters are. */
const MISNAMED = ['handles', 'requests', 'resources'].map((what) => `nodejs_active_${what}_total`);

/** Milliseconds between two samples of the event loop's delay. Each sample wakes an idle process. */
export const LOOP_SAMPLE_MS = 50;

/**
 * What every process shows: its release, and what prom-client tells of it (memory, processor, event loop). All names
 * keep to Prometheus's conventions: base units, one unit to a name, `_total` for what this process has counted.
 *
 * @param isAlone whether the process has no other registry that shows its memory, processor and event loop
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

/** Shows of each thing that a process cannot do without whether it has it. */
export function addDependencyMetric(registry: Registry, missing: () => string[]): void {
  const names: Missing[] = ['postgres', 'migrations', 'redis', 'queue', 'producer'];
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

/** Shows by how much Postgres's clock differs from that of this process. */
export function addClockMetric(registry: Registry, skew: () => number | undefined): void {
  const help =
    'Seconds by which the clock of Postgres is ahead of the clock of this process (negative: behind), without the round trip.';
  addGauge(registry, { name: 'penstock_clock_skew_seconds', help }, skew);
}

/** Shows what became of this process's spans; nothing while nothing is traced. */
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

/** Shows for how long the oldest envelope of each lane and shard has been there; no number while nobody knows. */
export function addOldestMetric(
  registry: Registry,
  ages: () => { lane: string; shard: number; seconds: number }[] | undefined,
): void {
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

/** Values of a label that have a series of their own, those that come first; there may be any number of them. */
const MOST_VALUES = 50;

/** What all further values are shown as. */
const OTHER = 'other';

/** Bounds the values of a label: the first of them keep their names, the others share one. */
export function boundLabel(most = MOST_VALUES): (value: string | undefined) => string {
  const known = new Set<string>();
  return (value = OTHER) => {
    if (known.has(value)) return value;
    if (known.size >= most) return OTHER;
    known.add(value);
    return value;
  };
}

/** The first so many of a list by their size, and the sum of all others. */
export function largest<T>(list: T[], sizeOf: (one: T) => number, most = MOST_VALUES): [T[], T[]] {
  const sorted = [...list].sort((one, other) => sizeOf(other) - sizeOf(one));
  return [sorted.slice(0, most), sorted.slice(most)];
}

/** A gauge that shows a number only while it is known: an unknown one is no 0. */
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
 * Who may read /metrics: whoever shows the token as `Authorization: Bearer …`, as Prometheus does; with an empty token
 * everyone who reaches the port.
 *
 * @returns whether an Authorization header lets in; it takes as long for a token that is nearly right
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

/** What a proxy adds when it asks for somebody else. */
const FORWARDED = ['forwarded', 'x-forwarded-for', 'x-real-ip', 'via'];

/**
 * Who may read where the processes of the fleet are, which is a map of the network: whoever shows the token. With an empty
 * one nobody but this machine itself: from a loopback address, and not through a proxy that stands there. A proxy may add no
 * header, so that behind one of the settings nobody is told without a token.
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
 * Returns whether a Host header names an address or localhost. A page of another site that reaches this machine by DNS
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
