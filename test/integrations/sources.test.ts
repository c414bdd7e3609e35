import { describe, expect, test } from 'vitest';
import { SourceError } from '../../src/integrations/source.ts';
import { open, readAll, warehouses } from './warehouses.ts';

const columns = ['EXTERNAL_ID', 'UPDATED_AT', 'PAYLOAD'];

describe.each(warehouses)('$name', ({ stock, noTime }) => {
  test('rows are in the order of UPDATED_AT, with their original identifiers and payload', async () => {
    const rows = await readAll(
      await stock(columns, [
        ['007', '2026-01-03T00:00:00Z', '{"a":1}'],
        ['b', '2026-01-01T00:00:00.5Z', '{"b": 12345678901234567890.10}'],
        ['c', '2026-01-02T02:00:00.000001+02:00', '{}'],
      ]),
    );
    expect(rows).toEqual([
      {
        updatedAt: '2026-01-01T00:00:00.500000Z',
        identifiers: { external_id: 'b' },
        payload: '{"b": 12345678901234567890.10}',
      },
      { updatedAt: '2026-01-02T00:00:00.000001Z', identifiers: { external_id: 'c' }, payload: '{}' },
      { updatedAt: '2026-01-03T00:00:00.000000Z', identifiers: { external_id: '007' }, payload: '{"a":1}' },
    ]);
  });

  test('rows at the exact time since are included, and rows a microsecond earlier are not', async () => {
    const stocked = await stock(columns, [
      ['before', '2026-01-01T00:00:00.123455Z', '{}'],
      ['at', '2026-01-01T00:00:00.123456Z', '{}'],
      ['also at', '2026-01-01T01:00:00.123456+01:00', '{}'],
      ['after', '2026-01-01T00:00:00.123457Z', '{}'],
    ]);
    const rows = await readAll(stocked, '2026-01-01T00:00:00.123456Z');
    const ids = rows.map(({ identifiers }) => identifiers.external_id);
    expect(ids.slice(0, 2).sort()).toEqual(['also at', 'at']);
    expect(ids.slice(2)).toEqual(['after']);
  });

  test('rows without a time are included as unreadable, also with since, and hide no other row', async () => {
    const stocked = await stock(columns, [
      ['none', null, '{}'],
      ['old', '2025-01-01T00:00:00Z', '{}'],
      ['wrong', noTime, '{}'],
      ['good', '2026-01-01T00:00:00Z', '{}'],
    ]);
    const rows = await readAll(stocked, '2026-01-01T00:00:00.000000Z');
    const byId = new Map(rows.map((row) => [row.identifiers.external_id, row]));
    expect([...byId.keys()].sort()).toEqual(['good', 'none', 'wrong']);
    expect(byId.get('none')).toMatchObject({ unreadable: '', payload: '{}' });
    expect(byId.get('wrong')?.unreadable).toContain(noTime);
    expect(byId.get('wrong')).not.toHaveProperty('updatedAt');
    expect(byId.get('good')).not.toHaveProperty('unreadable');
  });

  test('columns are found in any case, null counts as absent, and other columns are ignored', async () => {
    const stocked = await stock(
      ['Email', 'updated_AT', 'secret "col', 'payLoad', 'Alias_Name', 'alias_label', 'SERVICE_ID', 'phone'],
      [['a@example.com', '2026-01-01T00:00:00Z', 'x', null, 'n', 'l', '0123', '+4930']],
    );
    expect(await readAll(stocked)).toEqual([
      {
        updatedAt: '2026-01-01T00:00:00.000000Z',
        identifiers: {
          email: 'a@example.com',
          alias_name: 'n',
          alias_label: 'l',
          service_id: '0123',
          phone: '+4930',
        },
      },
    ]);
  });

  test("the service's own id has its wire name, and no other", async () => {
    const stocked = await stock(
      ['BRAZE_ID', 'SERVICE_ID', 'UPDATED_AT'],
      [['b', 's', '2026-01-01T00:00:00Z']],
    );
    const source = await open(stocked, 'braze_id');
    const rows = [];
    const { signal } = new AbortController();
    for await (const some of source.rowsSince(undefined, { batch: 10, signal })) rows.push(...some);
    await source.close();
    expect(rows.map(({ identifiers }) => identifiers)).toEqual([{ service_id: 'b' }]);
  });

  test('describe names every column as the source spells it', async () => {
    const stocked = await stock(
      ['External_Id', 'UPDATED_AT', 'payload'],
      [['a', '2026-01-01T00:00:00Z', '{}']],
    );
    const source = await open(stocked);
    const names = (await source.describe()).map(({ name }) => name);
    await source.close();
    expect(names.sort()).toEqual(['External_Id', 'UPDATED_AT', 'payload']);
  });

  test('two columns that differ only in case are a configuration error', async () => {
    const stocked = await stock(
      ['email', 'EMAIL', 'UPDATED_AT'],
      [['a@example.com', 'b@example.com', '2026-01-01T00:00:00Z']],
    );
    await expect(readAll(stocked)).rejects.toThrow(/email and EMAIL|EMAIL and email/);
    await expect(readAll(stocked)).rejects.toMatchObject({ reason: 'config' });
  });

  test('a source without UPDATED_AT is rejected', async () => {
    const stocked = await stock(['external_id', 'payload'], [['a', '{}']]);
    await expect(readAll(stocked)).rejects.toThrow(/the column UPDATED_AT is missing/);
  });

  test('a payload keeps its quotes, line breaks, commas and characters of every script', async () => {
    const payload = JSON.stringify({
      'a"b': "it's, \\ \n\r\n\t;|",
      emoji: '🌊 日本語 עברית',
      nul: 'a\u001fb',
    });
    const pretty = JSON.stringify({ a: [1, { b: null }] }, undefined, 2);
    const stocked = await stock(columns, [
      ["x'; drop table users; --", '2026-01-01T00:00:00Z', payload],
      ['y"\n,z', '2026-01-02T00:00:00Z', pretty],
    ]);
    const rows = await readAll(stocked);
    expect(rows.map((row) => row.payload)).toEqual([payload, pretty]);
    expect(rows.map((row) => row.identifiers.external_id)).toEqual(["x'; drop table users; --", 'y"\n,z']);
  });

  test('several thousand rows come in batches of at most the requested size, each row once', async () => {
    const stocked = await stock(
      columns,
      Array.from({ length: 5000 }, (_, index) => [
        `user-${index}`,
        new Date(Date.UTC(2026, 0, 1) + ((index * 7919) % 5000) * 1000).toISOString(),
        '{}',
      ]),
    );
    const source = await open(stocked);
    const sizes: number[] = [];
    const times: string[] = [];
    const { signal } = new AbortController();
    for await (const rows of source.rowsSince(undefined, { batch: 300, signal })) {
      sizes.push(rows.length);
      times.push(...rows.map(({ updatedAt }) => updatedAt!));
    }
    await source.close();
    expect(Math.max(...sizes)).toBeLessThanOrEqual(300);
    expect(new Set(times).size).toBe(5000);
    expect(times).toEqual([...times].sort());
  });

  test('a signal ends the reading with its reason', async () => {
    const stocked = await stock(
      columns,
      Array.from({ length: 1000 }, (_, index) => [`user-${index}`, '2026-01-01T00:00:00Z', '{}']),
    );
    const source = await open(stocked);
    const stop = new AbortController();
    const reason = new Error('cancelled');
    let read = 0;
    const reading = async () => {
      for await (const rows of source.rowsSince(undefined, { batch: 10, signal: stop.signal })) {
        read += rows.length;
        stop.abort(reason);
      }
    };
    await expect(reading()).rejects.toBe(reason);
    expect(read).toBe(10);
    await source.close();
  });

  test('a source can be closed after the reading was stopped early', async () => {
    const stocked = await stock(
      columns,
      Array.from({ length: 1000 }, (_, index) => [`user-${index}`, '2026-01-01T00:00:00Z', '{}']),
    );
    const source = await open(stocked);
    const { signal } = new AbortController();
    for await (const rows of source.rowsSince(undefined, { batch: 10, signal })) {
      expect(rows).toHaveLength(10);
      break;
    }
    await source.close();
  });

  test('a table without rows returns no rows', async () => {
    const stocked = await stock(columns, []);
    expect(await readAll(stocked)).toEqual([]);
  });
});

test('a source without the credentials that it needs is a configuration error', async () => {
  const definition = {
    type: 'postgres',
    host: 'localhost',
    port: 1,
    database: 'd',
    table: 't',
    tls: 'off',
  } as const;
  await expect(open({ definition })).rejects.toThrow(SourceError);
  await expect(
    open({ definition, credentials: { access_key_id: 'a', secret_access_key: 'b' } }),
  ).rejects.toMatchObject({ reason: 'config' });
});
