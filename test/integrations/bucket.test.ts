import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { PutObjectCommand } from '@aws-sdk/client-s3';
import { expect, test } from 'vitest';
import type { BucketDefinition } from '../../src/integrations/definition.ts';
import { temporaryFolder } from '../setup/fixtures.ts';
import { startS3, startStrictS3 } from './s3.ts';
import { open, readAll, type Stocked } from './warehouses.ts';

const csv = (id: string, at = '2026-01-01') => `EXTERNAL_ID,UPDATED_AT\n${id},${at}\n`;

async function bucketOf(
  objects: Record<string, string>,
  prefix = '',
): Promise<Stocked & { definition: BucketDefinition }> {
  const s3 = await startS3();
  const bucket = await s3.fill(temporaryFolder('penstock-empty-'), '');
  for (const [Key, Body] of Object.entries(objects)) {
    await s3.client.send(new PutObjectCommand({ Bucket: bucket, Key, Body }));
  }
  return {
    definition: { type: 's3', bucket, prefix, region: 'eu-central-1', endpoint: s3.endpoint, format: 'csv' },
    credentials: s3.credentials,
  };
}

async function idsOf(stocked: Stocked): Promise<string[]> {
  return (await readAll(stocked)).map(({ identifiers }) => identifiers.external_id!).sort();
}

test('every object of the format under the prefix counts, and no other', async () => {
  const stocked = await bucketOf(
    {
      '_raw/users/a.csv': csv('a'),
      '_raw/users/day=1/b.csv': csv('b'),
      '_raw/users/_temporary/x.csv': csv('x'),
      '_raw/users/x.json': '{}',
      '_raw/other.csv': csv('x'),
      "_raw/users/it's * [0]?.csv": csv('c'),
    },
    '_raw/users/',
  );
  expect(await idsOf(stocked)).toEqual(['a', 'b', 'c']);
});

test('more objects than a page of the list holds are all read, in the order of their rows', async () => {
  const objects = Array.from({ length: 1003 }, (_, index) => [
    `${index}.csv`,
    csv(`user-${index}`, new Date(Date.UTC(2026, 0, 1) + ((index * 7919) % 1003) * 1000).toISOString()),
  ]);
  const rows = await readAll(await bucketOf(Object.fromEntries(objects)));
  const times = rows.map(({ updatedAt }) => updatedAt!);
  expect(new Set(times).size).toBe(1003);
  expect(times).toEqual([...times].sort());
});

test('describe looks at one object, the newest that is not empty', async () => {
  const stocked = await bucketOf({ 'a.csv': 'OLD,UPDATED_AT\n', 'b.csv': '' });
  const source = await open(stocked);
  expect((await source.describe()).map(({ name }) => name)).toEqual(['OLD', 'UPDATED_AT']);
  await source.close();
});

test('what only the owner can mend is an error of the configuration that says what and where, and no secret', async () => {
  const good = await bucketOf({ 'a.csv': csv('a') });
  const strict = await startStrictS3();
  const secret = 'a-secret-access-key';
  const cases: [Partial<BucketDefinition>, { access_key_id: string; secret_access_key: string }, RegExp][] = [
    [{}, { access_key_id: 'nobody', secret_access_key: secret }, /InvalidAccessKeyId/],
    [{ endpoint: strict }, { access_key_id: 'S3RVER', secret_access_key: secret }, /SignatureDoesNotMatch/],
    [
      { bucket: 'missing-bucket' },
      { access_key_id: 'S3RVER', secret_access_key: secret },
      /missing-bucket.*NoSuchBucket/,
    ],
    [
      { prefix: 'nothing/' },
      { access_key_id: 'S3RVER', secret_access_key: secret },
      /no csv object under the prefix "nothing\/"/,
    ],
    [{ format: 'parquet' }, { access_key_id: 'S3RVER', secret_access_key: secret }, /no parquet object/],
    [
      { endpoint: 'http://127.0.0.1:1' },
      { access_key_id: 'S3RVER', secret_access_key: secret },
      /127\.0\.0\.1:1.*ECONNREFUSED/,
    ],
    [
      { endpoint: 'http://no-such-host.invalid' },
      { access_key_id: 'S3RVER', secret_access_key: secret },
      /no-such-host/,
    ],
  ];
  for (const [changes, credentials, message] of cases) {
    const error = await open({ definition: { ...good.definition, ...changes }, credentials }).then(
      () => undefined,
      (reason: Error) => reason,
    );
    expect(error).toMatchObject({ name: 'SourceError', reason: 'config', message });
    expect(error!.message).not.toContain(secret);
  }
});

test('a service that fails, and one that breaks off within an object, are no errors of the configuration', async () => {
  const list = `<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a.csv</Key><Size>100</Size></Contents></ListBucketResult>`;
  let lists = true;
  const server = createServer((request, response) => {
    if (request.url?.includes('list-type')) {
      if (lists) response.end(list);
      else response.writeHead(503).end();
      return;
    }
    response.writeHead(200, { 'content-length': '100' });
    response.write(csv('a'));
    setImmediate(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const stocked: Stocked = {
    definition: {
      type: 's3',
      bucket: 'bucket',
      prefix: '',
      region: 'eu-central-1',
      endpoint: `http://127.0.0.1:${port}`,
      format: 'csv',
    },
    credentials: { access_key_id: 'a', secret_access_key: 'b' },
  };
  await expect(readAll(stocked)).rejects.toMatchObject({ name: 'SourceError', reason: 'failed' });
  lists = false;
  await expect(open(stocked)).rejects.toMatchObject({ name: 'SourceError', reason: 'failed' });
  server.close();
});

test('objects that the disk has no room for are not fetched', async () => {
  const huge = `<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a.csv</Key><Size>9007199254740991</Size></Contents></ListBucketResult>`;
  let fetched = 0;
  const server = createServer((request, response) => {
    if (!request.url?.includes('list-type')) fetched += 1;
    response.end(huge);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const { definition, credentials } = await bucketOf({ 'a.csv': csv('a') });
  const stocked = {
    definition: { ...definition, endpoint: `http://127.0.0.1:${port}` },
    credentials: credentials!,
  };
  await expect(readAll(stocked)).rejects.toMatchObject({
    name: 'SourceError',
    message: /9007199254740991 bytes, but the disk of .* has only \d+ free/,
  });
  expect(fetched).toBe(0);
  server.close();
});

test('a signal ends the fetching', async () => {
  const stocked = await bucketOf({ 'a.csv': csv('a') });
  const source = await open(stocked);
  const stop = new AbortController();
  stop.abort(new Error('cancelled'));
  const rows = source.rowsSince(undefined, { batch: 10, signal: stop.signal })[Symbol.asyncIterator]();
  await expect(rows.next()).rejects.toThrow('cancelled');
  await source.close();
});
