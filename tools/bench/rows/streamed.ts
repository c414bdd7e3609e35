import { setTimeout as sleep } from 'node:timers/promises';
import type { Contender } from '../contender.ts';
import type { Environment } from '../environment.ts';
import type { BenchRow } from '../figure.ts';
import type { Fleets } from '../fleets.ts';
import { measurePipeline } from '../pipeline.ts';
import { CONNECTIONS_OF_1, CONNECTIONS_OF_75, type Size } from '../size.ts';

/** What the receivers have not got by then is said to be lost. */
const PATIENCE_MS = 180_000;

/**
 * `ours-75` and `ours-1` once more, while a sync process sends all of it to two webhooks of the bench's own, on the same
 * cores. The next row begins when they have everything; for how long that took is in the figure.
 */
export function streamedRows(fleets: Fleets, environment: Environment, size: Size): BenchRow[] {
  return [75, 1].map((objects) => ({
    name: `ours-${objects}-streamed`,
    what: `Penstock, ${objects} per request, sent on to two webhooks`,
    measure: async () => {
      const streamed = await fleets.streamed();
      const figure = await measurePipeline(streamed, environment, {
        ...size,
        connections: objects === 1 ? CONNECTIONS_OF_1 : CONNECTIONS_OF_75,
        maxRequests: Number.POSITIVE_INFINITY,
        objects,
      });
      const begun = performance.now();
      await receive(streamed);
      return {
        ...figure,
        detail: { ...figure.detail, streamLagSeconds: (performance.now() - begun) / 1000 },
      };
    },
  }));
}

/** Until both cursors are behind the last row of the log. */
async function receive({ pool }: Contender): Promise<void> {
  const deadline = Date.now() + PATIENCE_MS;
  const question =
    'select (select coalesce(max(id), 0) from stream_log) - min(position) as behind from stream_destinations';
  for (;;) {
    const { rows } = await pool.query<{ behind: string }>(question);
    if (Number(rows[0]!.behind) <= 0) return;
    if (Date.now() > deadline) throw new Error(`the streams are ${rows[0]!.behind} rows behind`);
    await sleep(100);
  }
}
