import { runProbes } from '../../load/probes.ts';
import { runLoad } from '../../load/run-load.ts';
import { emptyTally } from '../../load/tally.ts';
import type { Environment } from '../environment.ts';
import type { BenchRow, Figure } from '../figure.ts';
import type { Fleets } from '../fleets.ts';
import { measurePipeline } from '../pipeline.ts';
import { CONNECTIONS_OF_75, type Size } from '../size.ts';

/** Milliseconds between two profiles that are looked for. */
const PROBE_EVERY = 20;

/** Of what the pipeline applies when it is sent as much as it takes. */
const SHARE = 0.7;

/** How long a request waits, and what it wrote until it can be read, at 70 % of full load and on an idle system. */
export function latencyRows(fleets: Fleets, environment: Environment, size: Size): BenchRow[] {
  async function measureFull(): Promise<number> {
    const shape = {
      ...size,
      objects: 75,
      connections: CONNECTIONS_OF_75,
      maxRequests: Number.POSITIVE_INFINITY,
    };
    return (await measurePipeline(await fleets.ours(), environment, shape)).value;
  }

  async function underLoad(): Promise<Figure> {
    // Each time anew: what a shared machine gives changes from minute to minute.
    const objects = (await measureFull()) * SHARE;
    const ours = await fleets.ours();
    const { accept, probes, tally } = await runLoad({
      target: ours.target,
      key: ours.key,
      observer: { ...ours.observer, probeEvery: PROBE_EVERY },
      objects: 75,
      badShare: 0.01,
      users: size.users,
      connections: 64,
      rate: objects / 75,
      seconds: size.seconds,
      maxRequests: Number.POSITIVE_INFINITY,
      probe: true,
      drainSeconds: 60,
    });
    const readable = probes?.readable;
    if (!accept || !readable) throw new Error(`nothing was measured: ${probes?.trouble ?? 'no answer'}`);
    return {
      value: readable.p50,
      unit: 'ms',
      detail: {
        rows: tally.accepted,
        objects_per_second: objects,
        readable_p99_ms: readable.p99,
        accept_p50_ms: accept.p50,
        accept_p99_ms: accept.p99,
      },
    };
  }

  async function idle(): Promise<Figure> {
    const ours = await fleets.ours();
    const tally = emptyTally();
    const { readable, trouble } = await runProbes(
      {
        ...ours.target,
        key: ours.key,
        observer: { ...ours.observer, probeEvery: PROBE_EVERY },
        end: performance.now() + size.seconds * 1000,
      },
      tally,
    );
    if (!readable) throw new Error(`nothing was measured: ${trouble ?? 'no answer'}`);
    return {
      value: readable.p50,
      unit: 'ms',
      detail: { rows: readable.count, readable_p99_ms: readable.p99 },
    };
  }

  return [
    {
      name: 'latency-70',
      what: 'from the answer until the profile can be read, median, at 70 % of full load',
      measure: underLoad,
    },
    { name: 'latency-idle', what: 'the same on an idle system', measure: idle },
  ];
}
