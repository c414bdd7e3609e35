import pg from 'pg';
import { describe, expect, inject, test } from 'vitest';
import { PostgresClient, withRequiredScram } from '../../src/store/database.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { startImpostor, tricks } from '../setup/impostor.ts';

const SECRET = 'correct-horse-battery-staple';

describe('an address with require_auth=scram-sha-256', () => {
  test.each(Object.entries(tricks))(
    'a server that %s receives neither the password nor a statement',
    async (_, answers) => {
      const { port, heard } = await startImpostor(answers);
      const url = withRequiredScram(`postgresql://penstock:${SECRET}@127.0.0.1:${port}/penstock`);
      const { pool, prisma, stop } = openDatabase(url, 2);
      await expect(pool.query("select 'what is asked'")).rejects.toThrow();
      await expect(prisma.$queryRaw`select 'what is asked'`).rejects.toThrow();
      await stop();
      expect(heard()).toContain('user\0penstock\0database\0penstock');
      for (const kept of [SECRET, 'what is asked', 'md5']) expect(heard()).not.toContain(kept);
    },
  );

  test('a server that proves that it knows the password receives the statement', async () => {
    const client = new PostgresClient({ connectionString: withRequiredScram(inject('postgresUrl')) });
    await client.connect();
    const { rows } = await client.query('select 1 as one').finally(() => client.end());
    expect(rows).toEqual([{ one: 1 }]);
  });

  test('clients of an authenticated server run statements and report their errors', async () => {
    const pool = new pg.Pool({
      Client: PostgresClient,
      connectionString: withRequiredScram(inject('postgresUrl')),
      max: 5,
    });
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, n) => pool.query('select $1::integer as n', [n])),
    );
    expect(answers.map(({ rows }) => rows[0].n)).toEqual(Array.from({ length: 20 }, (_, n) => n));
    await expect(pool.query('select nonsense')).rejects.toThrow('column "nonsense" does not exist');
    await pool.end();
  });

  test('a wrong password is still reported by the server', async () => {
    const url = new URL(inject('postgresUrl'));
    url.password = 'guess';
    const client = new PostgresClient({ connectionString: withRequiredScram(url.href) });
    await expect(client.connect()).rejects.toThrow('password authentication failed');
  });
});
