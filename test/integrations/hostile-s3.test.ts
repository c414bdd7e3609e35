import { createServer, type RequestListener, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openBucket } from '../../src/integrations/bucket.ts';
import { createReach } from '../../src/platform/reach.ts';
import { endure, type Ordeal } from './hostile.ts';

interface Service {
  endpoint: string;
  requested: string[];
}

async function serve(answer: RequestListener): Promise<Service> {
  const requested: string[] = [];
  const server = createServer((request, response) => {
    requested.push(request.url!);
    response.on('error', () => {});
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  afterAll(() => {
    server.closeAllConnections();
    server.close();
  });
  return { endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, requested };
}

function read(
  { endpoint }: Service,
  { refused = 'none', ...more }: { refused?: string; scratchBytes?: number } = {},
): Promise<Ordeal> {
  return endure(() =>
    openBucket(
      { type: 's3', bucket: 'bucket', prefix: '', region: 'eu-central-1', endpoint, format: 'csv' },
      { access_key_id: 'a', secret_access_key: 'b' },
      {
        serviceIdField: 'service_id',
        scratchBytes: 10_000_000,
        reach: createReach({ refused, setting: 'SYNC_REFUSED_NETWORKS' }),
        patience: { connect: 1000, silence: 500, list: 3000, window: 500 },
        ...more,
      },
    ),
  );
}

const isList = (url = '') => url.includes('list-type');
const listOf = (keys: string[], { next, size = 1000 }: { next?: string; size?: number } = {}) =>
  `<ListBucketResult><IsTruncated>${next !== undefined}</IsTruncated>${
    next === undefined ? '' : `<NextContinuationToken>${next}</NextContinuationToken>`
  }${keys.map((key) => `<Contents><Key>${key}</Key><Size>${size}</Size></Contents>`).join('')}</ListBucketResult>`;

/** Writes the same bytes repeatedly, as fast as they are read. */
function sendRepeatedly(response: ServerResponse, bytes: string | Buffer): void {
  const more = () => {
    while (!response.destroyed && response.write(bytes));
  };
  response.on('drain', more);
  more();
}

/** Writes a little every few milliseconds. */
function drip(response: ServerResponse, bytes: string): void {
  const timer = setInterval(() => !response.destroyed && response.write(bytes), 50);
  response.on('close', () => clearInterval(timer));
}

/** Load the client's package first: that blocks the event loop for a second on a busy machine. */
beforeAll(async () => {
  await import('@aws-sdk/client-s3');
});

const megabyte = Buffer.alloc(1_048_576, 'x');
const onObject =
  (act: (response: ServerResponse) => void, size = 1000): RequestListener =>
  (request, response) => {
    if (isList(request.url)) response.end(listOf(['a.csv'], { size }));
    else act(response);
  };

test.each<[what: string, answer: RequestListener, said: RegExp]>([
  ['never answers', () => {}, /Timeout|did not end within/],
  ['drips a list', (_, response) => drip(response, ' '), /did not end within 3000 ms/],
  ['sends a list without end', (_, response) => sendRepeatedly(response, megabyte), /more than 524288 bytes/],
  [
    'sends an error without end',
    (_, response) => {
      response.writeHead(400);
      sendRepeatedly(response, megabyte);
    },
    /more than 524288 bytes/,
  ],
  [
    'has a DOCTYPE on each line',
    (_, response) => void response.end(`${'<!DOCTYPE a>'.repeat(40_000)}<ListBucketResult/>`),
    /DOCTYPE/,
  ],
  [
    'sends entities, as many as fit',
    (_, response) => void response.end(`<ListBucketResult>${'&#38;'.repeat(100_000)}</ListBucketResult>`),
    /no csv object was found/,
  ],
  [
    'nests without end',
    (_, response) => void response.end(`<ListBucketResult>${'<a>'.repeat(150_000)}`),
    /stack|XML|Maximum/i,
  ],
  [
    'always has a further page',
    (_, response) => void response.end(listOf([], { next: 'again' })),
    /too long|did not end within/,
  ],
  ['never begins an object', onObject(() => {}), /Timeout/],
  ['drips an object', onObject((response) => drip(response, 'x')), /s3:\/\/bucket\/a\.csv is too slow/],
  [
    'sends an object without end',
    onObject((response) => sendRepeatedly(response, megabyte)),
    /more than the 1000 bytes that the list has/,
  ],
  [
    'lists an object that is larger than there is room',
    onObject((response) => sendRepeatedly(response, megabyte), 10 ** 15),
    /bytes/,
  ],
  [
    'sends more of one than it lists',
    onObject((response) => void response.end(Buffer.alloc(5000, 'x'))),
    /more than the 1000 bytes/,
  ],
  [
    'announces another length than it sends',
    onObject((response) => {
      response.writeHead(200, { 'content-length': '900' });
      response.write('x');
      response.socket?.end();
    }),
    /aborted|ECONNRESET|closed|hang up/i,
  ],
])(
  'a bucket that %s fails the reading within seconds, with an error that explains it',
  async (_, answer, expected) => {
    const { error, milliseconds, stall, grown } = await read(await serve(answer));
    expect(error).toMatchObject({ name: 'SourceError', message: expect.stringMatching(expected) });
    expect(error!.message.length).toBeLessThanOrEqual(2001);
    expect(milliseconds).toBeLessThan(15_000);
    expect(stall).toBeLessThan(1000);
    expect(grown).toBeLessThan(300);
  },
);

test.each([301, 302, 303, 307, 308])(
  'a redirect (%i) to another address is not followed, and its response stays hidden',
  async (status) => {
    const secret = await serve((_, response) => void response.end(listOf(['a.csv'])));
    const service = await serve((_, response) => {
      response.writeHead(status, {
        location: `${secret.endpoint}/latest/meta-data`,
        'x-amz-bucket-region': 'x',
      });
      response.end('<Error><Code>PermanentRedirect</Code><Endpoint>127.0.0.1</Endpoint></Error>');
    });
    const { error } = await read(service);
    expect(error).toMatchObject({ name: 'SourceError' });
    expect(secret.requested).toEqual([]);
  },
);

test('a compressed object that unpacks to more than SYNC_SCRATCH_BYTES ends the run', async () => {
  const bomb = gzipSync(Buffer.alloc(50_000_000, '\n'));
  const service = await serve((request, response) => {
    if (isList(request.url)) response.end(listOf(['a.csv.gz'], { size: bomb.length }));
    else response.end(bomb);
  });
  const { error } = await read(service);
  expect(error).toMatchObject({ reason: 'config', message: expect.stringMatching(/SYNC_SCRATCH_BYTES/) });
});

test('an address in SYNC_REFUSED_NETWORKS is never connected to, also by a name', async () => {
  const service = await serve((_, response) => void response.end(listOf(['a.csv'])));
  const byName = { ...service, endpoint: service.endpoint.replace('127.0.0.1', 'localhost') };
  for (const to of [service, byName]) {
    const { error } = await read(to, { refused: '10.0.0.0/8,127.0.0.0/8,::1/128' });
    expect(error).toMatchObject({
      reason: 'config',
      message: expect.stringMatching(/SYNC_REFUSED_NETWORKS/),
    });
  }
  expect(service.requested).toEqual([]);
});
