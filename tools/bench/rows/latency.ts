import { runProbes } from '../../load/probes.ts';
import { emptyTally } from '../../load/tally.ts';
import type { Environment } from '../environment.ts';
import type { BenchRow, Figure } from '../figure.ts';
import type { Fleets } from '../fleets.ts';
import { measureIdleFsync } from '../idle-fsync.ts';
import { measureFullRate, measureOffered, PROBE_EVERY } from '../offered-load.ts';
import type { Size } from '../size.ts';

/** Share of the rate that the pipeline applies at full load. */
const SHARE = 0.7;

/**
 * Measures the response time and the time until a written profile can be read, at 70 % of full load and on an
 * idle system.
 */
export function latencyRows(fleets: Fleets, environment: Environment, size: Size): BenchRow[] {
  async function underLoad(): Promise<Figure> {
    const ours = await fleets.ours();
    const idle_fsync_ms = measureIdleFsync(environment.folder);
    // Measure full load each time, because the speed of a shared machine changes from minute to minute.
    const full = await measureFullRate(ours, environment, size);
    const offered = await measureOffered(ours, size, full * SHARE);
    return { value: offered.readable_p50_ms, unit: 'ms', detail: { ...offered, idle_fsync_ms } };
  }

  async function idle(): Promise<Figure> {
    const ours = await fleets.ours();
    const tally = emptyTally();
    const { readable, failure } = await runProbes(
      {
        ...ours.target,
        key: ours.key,
        observer: { ...ours.observer, probeEvery: PROBE_EVERY },
        end: performance.now() + size.seconds * 1000,
      },
      tally,
    );
    if (!readable) throw new Error(`nothing was measured: ${failure ?? 'no answer'}`);
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
