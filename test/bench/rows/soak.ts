import type { Environment } from '../environment.ts';
import type { BenchRow, Figure } from '../figure.ts';
import type { Fleets } from '../fleets.ts';
import { measurePipeline } from '../pipeline.ts';
import { watchResident } from '../resident-memory.ts';
import { CONNECTIONS_OF_75, type Size } from '../size.ts';

/** Full load for many minutes: whether the memory of web and worker stays where it is. */
export function soakRow(fleets: Fleets, environment: Environment, size: Size, minutes: number): BenchRow {
  async function measure(): Promise<Figure> {
    const ours = await fleets.ours();
    const resident = watchResident(ours.pids);
    try {
      const figure = await measurePipeline(ours, environment, {
        ...size,
        seconds: minutes * 60,
        objects: 75,
        connections: CONNECTIONS_OF_75,
        maxRequests: Number.POSITIVE_INFINITY,
      });
      return { ...figure, detail: { ...figure.detail, minutes, ...resident.stop() } };
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
