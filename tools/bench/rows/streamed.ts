import { setTimeout as sleep } from 'node:timers/promises';
import type { Contender } from '../contender.ts';
import type { Environment } from '../environment.ts';
import type { BenchRow } from '../figure.ts';
import type { Fleets } from '../fleets.ts';
import { measurePipeline } from '../pipeline.ts';
import { CONNECTIONS_OF_1, CONNECTIONS_OF_75, type Size } from '../size.ts';

/** Milliseconds after which messages that the receivers have not got count as lost. */
const TIMEOUT_MS = 180_000;

/**
 * Measures `ours-75` and `ours-1` while a sync process delivers all objects to two webhooks of the bench on
 * the same cores. The next row begins when the receivers have everything; the figure contains how long that
 * took. The ratio is relative to the same processes without a destination, because a sync process also runs
 * without streams, and other processes have other tables.
 */
export function streamedRows(fleets: Fleets, environment: Environment, size: Size): BenchRow[] {
  async function measure(objects: number, isStreamed: boolean) {
    const fleet = await fleets.streamed();
    await (isStreamed ? restoreDestinations(fleet) : removeDestinations(fleet));
    const figure = await measurePipeline(fleet, environment, {
      ...size,
      connections: objects === 1 ? CONNECTIONS_OF_1 : CONNECTIONS_OF_75,
      maxRequests: Number.POSITIVE_INFINITY,
      objects,
    });
    if (!isStreamed) return figure;
    const begun = performance.now();
    await receive(fleet);
    return { ...figure, detail: { ...figure.detail, streamLagSeconds: (performance.now() - begun) / 1000 } };
  }
  return [75, 1].flatMap((objects) => [
    {
      name: `ours-${objects}-unstreamed`,
      what: `Penstock, ${objects} per request, with a sync process that has nothing to do`,
      measure: () => measure(objects, false),
    },
    {
      name: `ours-${objects}-streamed`,
      what: 'the same, sent on to two webhooks',
      measure: () => measure(objects, true),
    },
  ]);
}

/** Removes the destinations. Workers then write no stream log. */
async function removeDestinations({ pool }: Contender): Promise<void> {
  await pool.query('create table if not exists taken_away (like stream_destinations)');
  await pool.query(
    `with gone as (delete from stream_destinations returning stream_destinations.*)
     insert into taken_away select * from gone`,
  );
}

async function restoreDestinations({ pool }: Contender): Promise<void> {
  await pool.query('create table if not exists taken_away (like stream_destinations)');
  // Changes that took effect meanwhile are not in the log.
  await pool.query(
    `with back as (delete from taken_away returning taken_away.*)
     insert into stream_destinations select * from back`,
  );
}

/** Waits until both cursors have passed the last row of the log. */
async function receive({ pool }: Contender): Promise<void> {
  const deadline = Date.now() + TIMEOUT_MS;
  const question =
    'select (select coalesce(max(id), 0) from stream_log) - min(position) as behind from stream_destinations';
  for (;;) {
    const { rows } = await pool.query<{ behind: string }>(question);
    if (Number(rows[0]!.behind) <= 0) return;
    if (Date.now() > deadline) throw new Error(`the streams are ${rows[0]!.behind} rows behind`);
    await sleep(100);
  }
}
