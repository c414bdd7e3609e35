import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { PutObjectCommand } from '@aws-sdk/client-s3';
import { afterAll, expect, test } from 'vitest';
import type { BucketDefinition } from '../../src/integrations/source.ts';
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
    await s3.client.send(new PutObjectCommand({ Bucket: bucket, Key, Body: Buffer.from(Body) }));
  }
  return {
    definition: { type: 's3', bucket, prefix, region: 'eu-central-1', endpoint: s3.endpoint, format: 'csv' },
    credentials: s3.credentials,
  };
}

function listOf(keys: string[], next?: string, size = 100): string {
  const contents = keys.map((key) => `<Contents><Key>${key}</Key><Size>${size}</Size></Contents>`);
  const more = next ? `<NextContinuationToken>${next}</NextContinuationToken>` : '';
  return `<ListBucketResult><IsTruncated>${!!next}</IsTruncated>${more}${contents.join('')}</ListBucketResult>`;
}

/** Starts a service with these answers. @returns a bucket on it */
async function service(answer: RequestListener): Promise<Stocked> {
  const server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  afterAll(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const endpoint = `http://127.0.0.1:${port}`;
  return {
    definition: { type: 's3', bucket: 'bucket', prefix: '', region: 'eu-central-1', endpoint, format: 'csv' },
    credentials: { access_key_id: 'a', secret_access_key: 'b' },
  };
}

async function idsOf(stocked: Stocked): Promise<string[]> {
  return (await readAll(stocked)).map(({ identifiers }) => identifiers.external_id!).sort();
}

test('reads all objects of the format under the prefix, and ignores others', async () => {
  const stocked = await bucketOf(
    {
      '_raw/users/a.csv': csv('a'),
      '_raw/users/day=1/b.csv': csv('b'),
      '_raw/users/_temporary/x.csv': csv('x'),
      '_raw/users/x.json': '{}',
      '_raw/other.csv': csv('x'),
      '_raw/users/ä + * [0]?.csv': csv('c'),
    },
    '_raw/users/',
  );
  expect(await idsOf(stocked)).toEqual(['a', 'b', 'c']);
});

test('more objects than one page of the list holds are all read, in the order of their rows', async () => {
  const pages: Record<string, string> = {
    '': listOf(['b.csv', 'c.csv'], 'next page'),
    'next page': listOf(['a.csv']),
  };
  const at: Record<string, string> = { a: '2026-01-02', b: '2026-01-03', c: '2026-01-01' };
  const stocked = await service((request, response) => {
    const { searchParams, pathname } = new URL(request.url!, 'http://localhost');
    if (searchParams.has('list-type')) response.end(pages[searchParams.get('continuation-token') ?? '']);
    else response.end(csv(pathname.at(-5)!, at[pathname.at(-5)!]));
  });
  const rows = await readAll(stocked);
  expect(rows.map(({ identifiers }) => identifiers.external_id)).toEqual(['c', 'a', 'b']);
});

test('describe reads one object, the newest that is not empty', async () => {
  const stocked = await bucketOf({ 'a.csv': 'OLD,UPDATED_AT\n', 'b.csv': '' });
  const source = await open(stocked);
  expect((await source.describe()).map(({ name }) => name)).toEqual(['OLD', 'UPDATED_AT']);
  await source.close();
});

test('a mistake of the owner is an error with cause and place, without secrets', async () => {
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
      /no csv object was found under the prefix "nothing\/"/,
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
    expect(error).toMatchObject({
      name: 'SourceError',
      reason: 'config',
      message: expect.stringMatching(message),
    });
    expect(error!.message).not.toContain(secret);
  }
});

test('a service that fails or breaks off an object is not an error of the configuration', async () => {
  const broken = await service((request, response) => {
    if (request.url?.includes('list-type')) {
      response.end(listOf(['a.csv']));
      return;
    }
    response.writeHead(200, { 'content-length': '100' });
    response.write(csv('a'));
    setImmediate(() => response.destroy());
  });
  await expect(readAll(broken)).rejects.toMatchObject({ name: 'SourceError', reason: 'failed' });
  const failing = await service((_, response) => void response.writeHead(503).end());
  await expect(open(failing)).rejects.toMatchObject({ name: 'SourceError', reason: 'failed' });
});

test('an object that is deleted during the reading fails, and is named', async () => {
  const stocked = await service((request, response) => {
    if (request.url?.includes('list-type')) response.end(listOf(['a.csv']));
    else response.writeHead(404).end('<Error><Code>NoSuchKey</Code></Error>');
  });
  await expect(readAll(stocked)).rejects.toMatchObject({
    name: 'SourceError',
    reason: 'failed',
    message: 's3://bucket/a.csv was deleted while the bucket was being read',
  });
});

test('objects that exceed the disk limit are not fetched', async () => {
  let fetched = 0;
  const stocked = await service((request, response) => {
    if (request.url?.includes('list-type'))
      response.end(listOf(['a.csv'], undefined, Number.MAX_SAFE_INTEGER));
    else fetched += 1;
  });
  await expect(readAll(stocked)).rejects.toMatchObject({
    name: 'SourceError',
    message: expect.stringMatching(/9007199254740991 bytes, but the disk of .* has only \d+ bytes free/),
  });
  expect(fetched).toBe(0);
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
