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
 * cores. The next row begins when they have everything; for how long that took is in the figure. Over the same of the same
 * processes before, which have no destination then: a sync process is there without streams as well, and other processes
 * have other tables.
 */
export function streamedRows(fleets: Fleets, environment: Environment, size: Size): BenchRow[] {
  async function measure(objects: number, isStreamed: boolean) {
    const fleet = await fleets.streamed();
    await (isStreamed ? giveBack(fleet) : takeAway(fleet));
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

/** Workers write no log where there is no destination. */
async function takeAway({ pool }: Contender): Promise<void> {
  await pool.query('create table if not exists taken_away (like stream_destinations)');
  await pool.query(
    `with gone as (delete from stream_destinations returning stream_destinations.*)
     insert into taken_away select * from gone`,
  );
}

async function giveBack({ pool }: Contender): Promise<void> {
  await pool.query('create table if not exists taken_away (like stream_destinations)');
  // What took effect meanwhile is not in the log.
  await pool.query(
    `with back as (delete from taken_away returning taken_away.*)
     insert into stream_destinations select * from back`,
  );
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
