import { PassThrough } from 'node:stream';
import pg from 'pg';
import { describe, expect, inject, onTestFinished, test } from 'vitest';
import { newId } from '../../src/platform/ids.ts';
import '../../src/store/alternate-identifiers.ts';
import { declareWorkspace, readSequenceValues } from '../../src/store/distributed.ts';
import { statementsWithForm } from '../../src/store/one-workspace.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { PostgresClient } from '../../src/store/postgres-client.ts';
import { ScramConnection, withRequiredScram } from '../../src/store/scram-connection.ts';
import { createDatabaseOfOne } from '../setup/fixtures.ts';
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

  // A man in the middle can relay the proof of the real server.
  test.each(['authenticationCleartextPassword', 'authenticationMD5Password', 'authenticationSASL'])(
    'a server that asks for the password by %s after its proof is disconnected',
    (request) => {
      const stream = new PassThrough();
      const connection = new ScramConnection({ stream: stream as never });
      const heard: unknown[] = [];
      connection.on('error', (error: Error) => heard.push(error.message));
      connection.on(request, () => heard.push(request));
      connection.emit('authenticationSASLFinal');
      connection.emit(request);
      expect(heard).toEqual(['the server does not prove that it knows the password']);
      expect(stream.destroyed).toBe(true);
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

  test('a server that has to use TLS receives only the request for TLS until it agrees', async () => {
    const { port, heard } = await startImpostor([() => Buffer.from('N')]);
    const url = `postgresql://penstock:${SECRET}@127.0.0.1:${port}/penstock?sslmode=no-verify`;
    const client = new PostgresClient({ connectionString: withRequiredScram(url) });
    await expect(client.connect()).rejects.toThrow('The server does not support SSL connections');
    expect(heard()).toBe('\0\0\0\b\u0004\u00d2\u0016/');
  });

  test('a wrong password is still reported by the server', async () => {
    const url = new URL(inject('postgresUrl'));
    url.password = 'guess';
    const client = new PostgresClient({ connectionString: withRequiredScram(url.href) });
    await expect(client.connect()).rejects.toThrow('password authentication failed');
  });
});

/** A statement of the store with a set. It returns a row for each user, also for unknown ones. */
const countDeprecatedStatement = [...statementsWithForm].find((text) =>
  text.includes('select wanted.workspace_id as "workspaceId", wanted.id, found.number'),
)!;

describe('a client of a distributed Postgres', () => {
  async function connect(): Promise<pg.PoolClient> {
    const client = new PostgresClient({ connectionString: (await createDatabaseOfOne()).url });
    await client.connect();
    onTestFinished(() => client.end());
    client.distribute(['set local enable_seqscan = off']);
    return client as unknown as pg.PoolClient;
  }

  test('sends a set in its form for one workspace, with values, in an object, and with a callback', async () => {
    const client = await connect();
    const [workspaceId, id] = [newId(), newId()];
    const values = [[workspaceId], [id]];
    const rows = [{ workspaceId, id, number: 0 }];
    const byCallback = new Promise((resolve, reject) =>
      client.query(countDeprecatedStatement, values, (error, result) =>
        error ? reject(error) : resolve(result),
      ),
    );
    expect(await client.query(countDeprecatedStatement, values)).toMatchObject({ rows });
    expect(
      await client.query({ name: 'count-deprecated', text: countDeprecatedStatement, values }),
    ).toMatchObject({ rows });
    expect(await byCallback).toMatchObject({ rows });
    const two = [
      [newId(), newId()],
      [newId(), newId()],
    ];
    expect(() => client.query(countDeprecatedStatement, two)).toThrow(
      'a statement for one workspace is given 2',
    );
  });

  test('sets the planner in each transaction only', async () => {
    const client = await connect();
    const setting = async () => (await client.query('show enable_seqscan')).rows[0].enable_seqscan;
    await client.query("begin; set local statement_timeout = '3s'");
    expect(await setting()).toBe('off');
    expect((await client.query('show statement_timeout')).rows).toEqual([{ statement_timeout: '3s' }]);
    await client.query('commit');
    expect(await setting()).toBe('on');
  });

  test('knows the workspace that a transaction has declared until the transaction ends', async () => {
    const client = await connect();
    const { scope } = client as unknown as PostgresClient;
    const workspaceId = newId();
    // Only a distributed Postgres has this table.
    await client.query('create temporary table workspace_places (workspace_id uuid primary key)');
    await client.query('begin');
    await declareWorkspace(client, workspaceId);
    await readSequenceValues(client);
    expect(scope?.workspaceId).toBe(workspaceId);
    expect(scope?.lastValues.get('failure_places')).toMatch(/^\d+$/);
    await client.query('rollback');
    expect(scope?.workspaceId).toBeUndefined();
  });
});
