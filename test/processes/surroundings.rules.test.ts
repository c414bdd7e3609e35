import { EventEmitter } from 'node:events';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { createSurroundings, type SurroundingsOptions } from '../../src/processes/surroundings.ts';
import { healthOf } from '../../src/queue/redis.ts';

const socket = (valid_to?: string) => ({ getPeerCertificate: () => (valid_to ? { valid_to } : {}) });
const clientOn = (stream: object) => ({ connection: { stream }, release() {} });

/** Creates a pool with one existing connection, and a Redis. */
function sceneOf(older: object, redis?: object, dataDir = '.') {
  const pool = Object.assign(new EventEmitter(), { connect: async () => clientOn(older) });
  const options = { pool, connection: { redis: redis && { stream: redis } }, dataDir };
  return { pool, ...createSurroundings(options as unknown as SurroundingsOptions) };
}

describe('certificates', () => {
  test("are read from the stores' connections, and updated by new connections", async () => {
    const { pool, local } = sceneOf(socket('Jan 31 12:00:00 2026 GMT'), socket('Feb  1 12:00:00 2026 GMT'));
    const untils = async () =>
      (await local()).certificates.map(({ store, until }) => [store, until.toISOString()]);
    expect(await untils()).toEqual([
      ['postgres', '2026-01-31T12:00:00.000Z'],
      ['redis', '2026-02-01T12:00:00.000Z'],
    ]);
    pool.emit('connect', clientOn(socket('Jan 31 12:00:00 2027 GMT')));
    expect(await untils()).toContainEqual(['postgres', '2027-01-31T12:00:00.000Z']);
  });

  test('are absent without encryption, and without Redis', async () => {
    expect((await sceneOf({}).local()).certificates).toEqual([]);
    expect((await sceneOf(socket()).local()).certificates).toEqual([]);
  });
});

test('disks are listed only for existing folders', async () => {
  const names = async (dataDir: string) =>
    (await sceneOf({}, undefined, dataDir).local()).disks.map(({ name, freeBytes, sizeBytes }) => {
      expect(freeBytes).toBeLessThanOrEqual(sizeBytes);
      return name;
    });
  expect(await names('.')).toEqual(['data', 'tmp']);
  expect(await names(path.resolve('nowhere'))).toEqual(['tmp']);
});

describe('the INFO of Redis', () => {
  const replica = (state: string, offset: number, lag: number) =>
    `slave0:ip=10.0.0.1,port=6379,state=${state},offset=${offset},lag=${lag}`;

  test('shows that it can write, and no lag without replicas', () => {
    expect(
      healthOf('aof_last_write_status:ok\r\nrdb_last_bgsave_status:ok\r\nmaster_repl_offset:100'),
    ).toEqual({
      writes: true,
    });
  });

  test.each(['aof_last_write_status', 'aof_last_bgrewrite_status', 'rdb_last_bgsave_status'])(
    'shows that it cannot write when %s is an error',
    (name) => {
      expect(healthOf(`# Persistence\r\n${name}:err\r\n`).writes).toBe(false);
    },
  );

  test('shows the lag of the slowest connected replica', () => {
    const info = [
      ...[replica('online', 90, 1), replica('online', 60, 7), replica('wait_bgsave', 0, 99)],
      'master_repl_offset:100',
    ].join('\r\n');
    expect(healthOf(info)).toEqual({ writes: true, lagSeconds: 7, lagBytes: 40 });
  });
});
