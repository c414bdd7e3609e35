import { setTimeout as sleep } from 'node:timers/promises';
import { assignUsers, makeMessages, postHead } from '../../load/bodies.ts';
import { HttpConnection } from '../../load/http-connection.ts';
import { createRandom } from '../../load/random.ts';
import type { Contender } from '../contender.ts';
import { readCpu } from '../cpu.ts';
import type { Environment } from '../environment.ts';
import type { BenchRow, Figure } from '../figure.ts';
import type { Fleets } from '../fleets.ts';
import { pin, unpin } from '../pin.ts';
import type { Size } from '../size.ts';

/** Objects that wait for the workers, per second of a measurement. */
const PER_SECOND = 30_000;

/**
 * What one worker and two apply, over four lanes, while Postgres has a core of its own and they share another one with
 * Redis: nothing is sent meanwhile. `postgres_core` says how much of its core Postgres uses.
 */
export function pinnedRows(fleets: Fleets, environment: Environment, size: Size): BenchRow[] {
  const row = (workers: number): BenchRow => ({
    name: `pinned-${workers}-worker${workers > 1 ? 's' : ''}`,
    what: `${workers} worker${workers > 1 ? 's' : ''} with four lanes, Postgres on a core of its own: objects/s applied of what waits`,
    measure: async () => apart(await fleets.fourLanes(workers)),
  });

  async function apart(contender: Contender): Promise<Figure> {
    const { pids, observer } = contender;
    const workers = Object.entries(pids).flatMap(([name, pid]) => (name.startsWith('worker') ? [pid] : []));
    const before = await observer.applied();
    for (const pid of workers) process.kill(pid, 'SIGSTOP');
    let rows: number;
    try {
      rows = await fill(contender, size);
      pin(environment.postgresPid, '0');
      for (const pid of [...workers, pids.web!, environment.redisPid]) pin(pid, '1');
    } finally {
      for (const pid of workers) process.kill(pid, 'SIGCONT');
    }
    try {
      const [cpu, began] = [readCpu({ postgres: environment.postgresPid }), performance.now()];
      while ((await observer.applied()) < before + rows) await sleep(observer.lookEvery);
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

/** @returns objects that wait */
async function fill({ target, key }: Contender, { seconds, users }: Size): Promise<number> {
  const connection = new HttpConnection(target);
  const head = postHead(`${target.host}:${target.port}`, '/users/track', key);
  const random = createRandom(1);
  const messages = makeMessages(50, head, { objects: 75, badShare: 0 }, random, Date.now());
  let sent = 0;
  try {
    for (let turn = 0; sent < seconds * PER_SECOND; turn++) {
      const message = messages[turn % messages.length]!;
      assignUsers(message, users, random);
      const { status, body } = await connection.send(message.bytes);
      if (status !== 201) throw new Error(`refused: ${status} ${body}`);
      sent += 75;
    }
  } finally {
    connection.close();
  }
  return sent;
}
