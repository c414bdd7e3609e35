import type { Environment } from '../environment.ts';
import type { BenchRow } from '../figure.ts';
import type { Fleets } from '../fleets.ts';
import { measurePipeline } from '../pipeline.ts';
import { CONNECTIONS_OF_1, CONNECTIONS_OF_75, type Size } from '../size.ts';

const shares = [
  { share: '0.01', word: 'sampled', what: 'one request in a hundred traced' },
  { share: '1', word: 'traced', what: 'every request traced' },
] as const;

/**
 * Measures `ours-75` and `ours-1` while spans are created and sent to a collector of the bench on the same
 * cores.
 */
export function tracedRows(fleets: Fleets, environment: Environment, size: Size): BenchRow[] {
  return [75, 1].flatMap((objects) =>
    shares.map(({ share, word, what }) => ({
      name: `ours-${objects}-${word}`,
      what: `Penstock, ${objects} per request, ${what}`,
      measure: async () =>
        measurePipeline(await fleets.traced(share), environment, {
          ...size,
          connections: objects === 1 ? CONNECTIONS_OF_1 : CONNECTIONS_OF_75,
          maxRequests: Number.POSITIVE_INFINITY,
          objects,
        }),
    })),
  );
}
