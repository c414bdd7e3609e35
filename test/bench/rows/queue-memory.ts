import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { makeMessages, postHead } from '../../load/bodies.ts';
import { HttpConnection } from '../../load/http-connection.ts';
import { createRandom } from '../../load/random.ts';
import type { Environment } from '../environment.ts';
import type { BenchRow, Figure } from '../figure.ts';
import type { Fleets } from '../fleets.ts';
import type { Size } from '../size.ts';

/** What Redis needs for what waits in it, over the bytes of the requests that brought it. */
export function queueMemoryRow(fleets: Fleets, environment: Environment, size: Size): BenchRow {
  async function measure(): Promise<Figure> {
    const ours = await fleets.ours();
    const redis = new Redis(environment.redisUrl);
    const connection = new HttpConnection(ours.target);
    const worker = ours.pids.worker!;
    process.kill(worker, 'SIGSTOP');
    try {
      const before = await usedMemory(redis);
      const { host, port } = ours.target;
      const head = postHead(`${host}:${port}`, '/users/track', ours.key);
      const messages = makeMessages(50, head, { objects: 75, badShare: 0 }, createRandom(1), Date.now());
      let bytes = 0;
      for (let turn = 0; bytes < size.waitingBytes; turn++) {
        const message = messages[turn % messages.length]!.bytes;
        const { status, body } = await connection.send(message);
        if (status !== 201) throw new Error(`refused: ${status} ${body}`);
        bytes += message.length - message.indexOf('\r\n\r\n') - 4;
      }
      const used = (await usedMemory(redis)) - before;
      return { value: used / bytes, unit: 'x', detail: { rows: 1, sent_bytes: bytes, redis_bytes: used } };
    } finally {
      process.kill(worker, 'SIGCONT');
      connection.close();
      redis.disconnect();
      // The next row begins with empty lanes.
      let seen = -1;
      for (let now = await ours.observer.applied(); now !== seen; now = await ours.observer.applied()) {
        seen = now;
        await sleep(1500);
      }
    }
  }
  return {
    name: 'queue-memory',
    what: 'memory that Redis needs for what waits in it, over the bytes of the bodies that brought it',
    measure,
  };
}

async function usedMemory(redis: Redis): Promise<number> {
  return Number(/used_memory:(\d+)/.exec(await redis.info('memory'))?.[1]);
}
