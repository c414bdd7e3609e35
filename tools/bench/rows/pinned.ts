import { setTimeout as sleep } from 'node:timers/promises';
import type { Contender } from '../contender.ts';
import { readCpu } from '../cpu.ts';
import type { Environment } from '../environment.ts';
import type { BenchRow, Figure } from '../figure.ts';
import { fillQueue, type Sent, whileWorkersStand, workersOf } from '../fill-queue.ts';
import type { Fleets } from '../fleets.ts';
import { pin, unpin } from '../pin.ts';
import type { Size } from '../size.ts';

/** Objects that wait for the workers, per second of a measurement. */
const PER_SECOND = 30_000;
const PER_REQUEST = 75;

/**
 * Measures the rate of one worker and of two with four lanes, while Postgres has its own core and the workers
 * share another one with Redis; no requests are sent meanwhile. `postgres_core` is the share of its core that
 * Postgres uses.
 */
export function pinnedRows(fleets: Fleets, environment: Environment, size: Size): BenchRow[] {
  const row = (workers: number): BenchRow => ({
    name: `pinned-${workers}-worker${workers > 1 ? 's' : ''}`,
    what: `${workers} worker${workers > 1 ? 's' : ''} with four lanes, Postgres on a core of its own: objects/s applied of what waits`,
    measure: async () => measurePinned(await fleets.fourLanes(workers)),
  });

  async function measurePinned(contender: Contender): Promise<Figure> {
    const { pids, observer } = contender;
    const workers = workersOf(pids);
    const before = await observer.applied();
    const requests = Math.ceil((size.seconds * PER_SECOND) / PER_REQUEST);
    await whileWorkersStand(contender, async () => {
      const isEnough = (sent: Sent) => sent.requests >= requests;
      await fillQueue(contender, { objects: PER_REQUEST, users: size.users, isEnough });
      pin(environment.postgresPid, '0');
      for (const pid of [...workers, pids.web!, environment.redisPid]) pin(pid, '1');
    });
    const rows = requests * PER_REQUEST;
    try {
      const [cpu, began] = [readCpu({ postgres: environment.postgresPid }), performance.now()];
      while ((await observer.applied()) < before + rows) await sleep(observer.readEvery);
      const seconds = (performance.now() - began) / 1000;
      const { postgres } = readCpu({ postgres: environment.postgresPid });
      const postgresCore = ((postgres ?? Number.NaN) - (cpu.postgres ?? 0)) / seconds;
      return { value: rows / seconds, unit: '/s', detail: { rows, seconds, postgres_core: postgresCore } };
    } finally {
      for (const pid of [environment.postgresPid, environment.redisPid, pids.web!, ...workers]) unpin(pid);
    }
  }

  return [row(1), row(2)];
}
