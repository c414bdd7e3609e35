import type { ChainableCommander } from 'ioredis';
import { describe, expect, test } from 'vitest';
import type { RedisClient } from '../../src/queue/open-redis.ts';
import { waitForReplicas } from '../../src/queue/replicas.ts';

type Answer = [Error | null, unknown];

/**
 * A server with one replica, reduced to the commands that adds use. `waitAof` is its answer to that command after an
 * add.
 */
function createServer({
  knows = true,
  isReachable = () => true,
  waitAof,
}: {
  knows?: boolean;
  isReachable?: () => boolean;
  waitAof: () => Answer;
}) {
  const sent: unknown[][] = [];
  const redis = {
    call: async (name: string) => {
      if (name === 'COMMAND' && !isReachable()) throw new Error('Connection is closed.');
      if (name === 'COMMAND') return [knows ? ['waitaof'] : null];
      return name === 'WAIT' ? 1 : waitAof()[1];
    },
  } as unknown as RedisClient;
  const pipeline = { call: (...command: unknown[]) => sent.push(command) } as unknown as ChainableCommander;
  const waiting = waitForReplicas(redis, { replicas: 1, timeout: 700, shard: 0 });
  return {
    /** @returns the commands after the transaction */
    async add(): Promise<unknown[][]> {
      sent.length = 0;
      await waiting.caughtUp();
      const check = waiting.appendTo(pipeline);
      check(sent.map(([name]) => (name === 'WAIT' ? [null, 1] : waitAof())));
      return [...sent];
    },
  };
}

const WAIT = ['WAIT', 1, 350];

describe('G1: the disks of replicas', () => {
  test('are awaited in each add after one that they confirmed at once', async () => {
    let held = 1;
    const { add } = createServer({ waitAof: () => [null, [0, held]] });
    expect(await add()).toEqual([WAIT, ['WAITAOF', 0, 1, 50]]);
    expect(await add()).toEqual([WAIT, ['WAITAOF', 0, 1, 350]]);
    held = 0;
    await expect(add()).rejects.toThrow('0 of 1 replicas hold the last added jobs on their disks');
    // Adds are refused until the replicas have caught up.
    await expect(add()).rejects.toThrow('0 of 1 replicas');
    held = 1;
    expect(await add()).toEqual([WAIT, ['WAITAOF', 0, 1, 350]]);
  });

  test('are no longer required after three adds in a row that only memory confirmed', async () => {
    let held = 1;
    const { add } = createServer({ waitAof: () => [null, [0, held]] });
    await add();
    held = 0;
    for (let misses = 0; misses < 3; misses++) await expect(add()).rejects.toThrow('on their disks');
    expect(await add()).toEqual([WAIT]);
  });

  test('are probed again if the server was unreachable when it was asked for the command', async () => {
    let isReachable = false;
    const { add } = createServer({ isReachable: () => isReachable, waitAof: () => [null, [0, 1]] });
    expect(await add()).toEqual([WAIT]);
    isReachable = true;
    expect(await add()).toEqual([WAIT, ['WAITAOF', 0, 1, 50]]);
  });

  test('are probed rarely and not awaited while they do not confirm', async () => {
    const { add } = createServer({ waitAof: () => [null, [0, 0]] });
    expect(await add()).toEqual([WAIT, ['WAITAOF', 0, 1, 50]]);
    expect(await add()).toEqual([WAIT]);
  });

  test('are not probed if the server does not have the command', async () => {
    const { add } = createServer({ knows: false, waitAof: () => [new Error('unreachable'), undefined] });
    expect(await add()).toEqual([WAIT]);
  });

  test('are no longer awaited after a failover to a server without the command', async () => {
    let answer: Answer = [null, [0, 1]];
    const { add } = createServer({ waitAof: () => answer });
    await add();
    answer = [new Error("ERR unknown command 'WAITAOF'"), undefined];
    expect(await add()).toEqual([WAIT, ['WAITAOF', 0, 1, 350]]);
    expect(await add()).toEqual([WAIT]);
  });
});
