import { setTimeout as sleep } from 'node:timers/promises';
import type { Contender } from '../contender.ts';
import type { BenchRow, Figure } from '../figure.ts';
import { fillQueue, whileWorkersStand } from '../fill-queue.ts';
import type { Fleets } from '../fleets.ts';
import type { Size } from '../size.ts';

const PER_ENVELOPE = 3;

/** Maximum seconds for a backlog. A longer one fails the bench. */
const DRAIN_SECONDS = 120;

const countEnvelopes = 'select sum(lane_totals.envelopes)::float8 as count from lane_totals';

/** Measures how fast a returning worker processes a backlog of many small envelopes. */
export function backlogRows(fleets: Fleets, size: Size): BenchRow[] {
  const of = async (fleet: Promise<Contender>): Promise<Figure> => {
    const contender = await fleet;
    const { observer, pool } = contender;
    const envelopes = async () => (await pool.query<{ count: number }>(countEnvelopes)).rows[0]!.count;
    const [appliedBefore, envelopesBefore] = [await observer.applied(), await envelopes()];
    const { requests } = await whileWorkersStand(contender, () =>
      fillQueue(contender, {
        objects: PER_ENVELOPE,
        users: size.users,
        isEnough: (sent) => sent.requests >= size.waitingEnvelopes,
      }),
    );
    const started = performance.now();
    const elapsed = () => (performance.now() - started) / 1000;
    const rows = requests * PER_ENVELOPE;
    while ((await observer.applied()) - appliedBefore < rows) {
      if (elapsed() > DRAIN_SECONDS) throw new Error(`${contender.name}: a backlog was not worked off`);
      await sleep(observer.readEvery);
    }
    const seconds = elapsed();
    return {
      value: rows / seconds,
      unit: '/s',
      detail: { rows, seconds, envelopes: (await envelopes()) - envelopesBefore },
    };
  };
  return [
    {
      name: 'backlog',
      what: 'envelopes of 3 objects that have waited for a worker: objects/s applied',
      measure: () => of(fleets.ours()),
    },
    {
      name: 'embedded-backlog',
      what: 'the same, with the queue in Postgres',
      measure: () => of(fleets.embedded()),
    },
  ];
}
