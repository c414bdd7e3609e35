import type { Environment } from '../environment.ts';
import type { BenchRow, Figure } from '../figure.ts';
import type { Fleets } from '../fleets.ts';
import { measurePipeline } from '../pipeline.ts';
import { watchResident } from '../resident-memory.ts';
import { CONNECTIONS_OF_75, type Size } from '../size.ts';

/** Maximum seconds without a pause. Web accepts far more than is applied, so the backlog must be limited. */
const STRETCH_SECONDS = 10;

/**
 * Measures whether the memory of web and worker grows during many minutes of full load. Each stretch of load
 * ends when its objects are applied.
 */
export function soakRow(
  fleets: Fleets,
  environment: Environment,
  { size, minutes }: { size: Size; minutes: number },
): BenchRow {
  async function measure(): Promise<Figure> {
    const ours = await fleets.ours();
    const resident = watchResident(ours.pids);
    try {
      const began = performance.now();
      const end = began + minutes * 60_000;
      let rows = 0;
      while (performance.now() < end) {
        const { detail } = await measurePipeline(ours, environment, {
          ...size,
          seconds: Math.min(STRETCH_SECONDS, (end - performance.now()) / 1000),
          objects: 75,
          connections: CONNECTIONS_OF_75,
          maxRequests: Number.POSITIVE_INFINITY,
        });
        rows += detail.rows!;
      }
      const seconds = (performance.now() - began) / 1000;
      return { value: rows / seconds, unit: '/s', detail: { rows, seconds, minutes, ...resident.stop() } };
    } finally {
      resident.stop();
    }
  }
  return {
    name: 'soak',
    what: `75 objects per request for ${minutes} minutes: objects/s applied`,
    once: true,
    measure,
  };
}
