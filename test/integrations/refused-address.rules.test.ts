import { expect, test } from 'vitest';
import { openPostgres } from '../../src/integrations/postgres-source.ts';
import { createReach } from '../../src/platform/reach.ts';

const settings = { type: 'postgres', port: 5432, database: 'shop', table: 'users' } as const;
const account = { user: 'reader', password: 'secret' };
const reach = createReach({ refused: 'private' });

const open = (host: string, tls: 'off' | 'verified' = 'off', port: number = settings.port) =>
  openPostgres({ ...settings, host, port, tls }, account, {
    serviceIdField: 'service_id',
    scratchBytes: 0,
    reach,
  });

test.each(['127.0.0.1', '10.0.0.1', '::1', '169.254.169.254'])(
  'a Postgres source at the refused address %s is an error of its configuration',
  async (host) => {
    for (const tls of ['off', 'verified'] as const)
      await expect(open(host, tls)).rejects.toMatchObject({
        name: 'SourceError',
        reason: 'config',
        message: `${host} is in a network that REFUSED_NETWORKS refuses; ALLOWED_NETWORKS has exceptions`,
      });
  },
);

test('an invalid port is an error of its source only', async () => {
  await expect(open('192.0.43.8', 'off', 70_000)).rejects.toMatchObject({ name: 'SourceError' });
});
