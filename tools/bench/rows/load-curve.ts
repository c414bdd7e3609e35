import type { Environment } from '../environment.ts';
import type { BenchRow, Figure } from '../figure.ts';
import type { Fleets } from '../fleets.ts';
import { measureFullRate, measureOffered } from '../offered-load.ts';
import type { Size } from '../size.ts';

/** Percent of the rate that the pipeline applies at full load. */
const SHARES = [10, 25, 50, 70, 85, 100];

/** Measures throughput and latency at several offered loads. */
export function loadCurveRows(fleets: Fleets, environment: Environment, size: Size): BenchRow[] {
  let full = 0;
  const measured = new Set<number>();

  async function measure(share: number): Promise<Figure> {
    const ours = await fleets.ours();
    // Measure full load once for all points of a round, so that they have the same scale.
    if (full === 0 || measured.has(share)) {
      full = await measureFullRate(ours, environment, size);
      measured.clear();
    }
    measured.add(share);
    const offered = await measureOffered(ours, size, (full * share) / 100);
    return { value: offered.applied_per_second, unit: '/s', detail: { share, ...offered } };
  }

  return SHARES.map((share) => ({
    name: `load-${share}`,
    what: `${share} % of full load is offered: objects/s applied`,
    measure: () => measure(share),
  }));
}
