import { expect, test } from 'vitest';
import { readPostgresDisk } from '../../src/admin/doctor/machine.ts';

test('reads the disk of Postgres on this machine, on a socket or the loopback address', async () => {
  for (const host of ['', '%2Fvar%2Frun%2Fpostgres', '%2fvar', 'localhost', '127.0.0.1', '[::1]'])
    expect(await readPostgresDisk(`postgresql://${host}/penstock`, '/')).toMatchObject({
      disk: { path: '/', freeBytes: expect.any(Number) },
    });
  expect(await readPostgresDisk('postgresql://db.example/penstock', '/')).toEqual({
    unreadDisk: { host: 'db.example' },
  });
});
