import { type AddressInfo, createServer, type Socket } from 'node:net';
import { afterAll, expect, test } from 'vitest';
import { openPostgres } from '../../src/integrations/postgres-source.ts';
import { createReach } from '../../src/platform/reach.ts';
import { endure, type Ordeal } from './hostile.ts';

const int16 = (value: number) => {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16BE(value);
  return bytes;
};
const int32 = (value: number) => {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
};
const text = (value: string) => Buffer.from(`${value}\0`);
const message = (type: string, ...parts: Buffer[]) => {
  const body = Buffer.concat(parts);
  return Buffer.concat([Buffer.from(type), int32(body.length + 4), body]);
};
/** Header of a message that declares an absurd length. */
const endless = (type: string) => Buffer.concat([Buffer.from(type), int32(0x7fffffff)]);
/** Header of a row with a permitted length. */
const begun = Buffer.concat([Buffer.from('D'), int32(10_000_000)]);

const ready = message('Z', Buffer.from('I'));
const complete = (tag = 'SELECT') => message('C', text(tag));
const columns = (names: readonly string[], type = 25) =>
  message(
    'T',
    int16(names.length),
    ...names.map((name) =>
      Buffer.concat([text(name), int32(0), int16(0), int32(type), int16(0), int32(-1), int16(0)]),
    ),
  );
const row = (...values: Buffer[]) =>
  message('D', int16(values.length), ...values.map((value) => Buffer.concat([int32(value.length), value])));
const failure = (expected: string) =>
  message('E', ...['SERROR', 'CXX000', `M${expected}`].map((field) => text(field)), Buffer.alloc(1));

/** Many notices per write, because the sender runs in this process too. */
const notices = Buffer.concat(
  Array.from({ length: 10_000 }, () => Buffer.concat([Buffer.from('N'), failure('hm').subarray(1)])),
);

const names = ['updated_at', 'external_id', 'payload'];
const fetched = columns(['at', 'shown', 'c0', 'c1']);
const oneRow = (payload: Buffer) =>
  row(Buffer.from('2026-01-01T00:00:00.000000Z'), Buffer.alloc(0), Buffer.from('user'), payload);

/** Handles a statement in place of the server; undefined: the server answers as Postgres would. */
type Behaviour = (statement: string, socket: Socket) => boolean | undefined;

function answer(statement: string): Buffer {
  if (statement.startsWith('select *')) return Buffer.concat([columns(names), complete(), ready]);
  if (statement.startsWith('select oid')) {
    const types = row(Buffer.from('25'), Buffer.from('text'));
    return Buffer.concat([columns(['oid', 'format_type']), types, complete(), ready]);
  }
  if (statement.startsWith('fetch')) return Buffer.concat([fetched, complete('FETCH 0'), ready]);
  return Buffer.concat([complete(), ready]);
}

/**
 * Starts a server that another party controls. The statement `startup` is the beginning of the connection.
 */
async function serve(behave: Behaviour): Promise<number> {
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    let begun = false;
    socket.on('data', (bytes) => {
      if (!begun) {
        begun = true;
        if (!behave('startup', socket)) socket.write(Buffer.concat([message('R', int32(0)), ready]));
        return;
      }
      if (bytes[0] !== 0x51) return;
      const statement = bytes.subarray(5, -1).toString();
      if (!behave(statement, socket)) socket.write(answer(statement));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  afterAll(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

/** Writes the same bytes repeatedly, as fast as they are read. */
function sendRepeatedly(socket: Socket, bytes: Buffer): true {
  const more = () => {
    while (socket.writable && socket.write(bytes));
  };
  socket.on('drain', more);
  more();
  return true;
}

async function read(behave: Behaviour): Promise<Ordeal> {
  const port = await serve(behave);
  const patience = { connect: 1000, answer: 1000, read: 2000, perRow: 1, end: 500 };
  return endure(() =>
    openPostgres(
      { type: 'postgres', host: '127.0.0.1', port, database: 'd', table: 't', tls: 'off' },
      { user: 'u', password: 'p' },
      { serviceIdField: 'service_id', scratchBytes: 1, reach: createReach({ refused: 'none' }), patience },
    ),
  );
}

const onFetch =
  (act: (socket: Socket) => unknown): Behaviour =>
  (statement, socket) => {
    if (!statement.startsWith('fetch')) return undefined;
    act(socket);
    return true;
  };
const on =
  (start: string, act: (socket: Socket) => unknown): Behaviour =>
  (statement, socket) => {
    if (!statement.startsWith(start)) return undefined;
    act(socket);
    return true;
  };

const megabyte = Buffer.alloc(1_048_576, 'x');

test.each<[what: string, behaviour: Behaviour, said: RegExp]>([
  ['never greets', on('startup', () => {}), /timeout expired/],
  [
    'greets without end',
    on('startup', (socket) => sendRepeatedly(socket, message('S', text('name'), text('x'.repeat(100))))),
    /timeout expired|without a row/,
  ],
  ['never answers a statement', on('select *', () => {}), /did not answer in time/],
  ['never answers a fetch', onFetch(() => {}), /did not answer in time/],
  [
    'sends rows without end',
    onFetch((socket) => {
      socket.write(fetched);
      sendRepeatedly(socket, oneRow(Buffer.from('{}')));
    }),
    /more rows than the requested 500/,
  ],
  [
    'sends a row that never ends',
    onFetch((socket) => {
      socket.write(Buffer.concat([fetched, endless('D')]));
      sendRepeatedly(socket, megabyte);
    }),
    /a message of 2147483647 bytes/,
  ],
  [
    'sends an error that never ends',
    onFetch((socket) => {
      socket.write(endless('E'));
      sendRepeatedly(socket, megabyte);
    }),
    /a message of 2147483647 bytes/,
  ],
  [
    'sends notices without end',
    onFetch((socket) => sendRepeatedly(socket, notices)),
    /bytes without a row or an end|did not answer in time/,
  ],
  [
    'sends an error of 200 KB',
    onFetch((socket) => socket.write(Buffer.concat([failure('x'.repeat(200_000)), ready]))),
    /^Postgres at 127\.0\.0\.1.*x{1000}/,
  ],
  [
    'sends an error of a million fields',
    onFetch((socket) => socket.write(message('E', Buffer.from('S\0'.repeat(1_000_000)), Buffer.alloc(1)))),
    /a message of 2000005 bytes/,
  ],
  [
    'sends a row of fewer bytes than it says',
    onFetch((socket) => socket.write(Buffer.concat([fetched, message('D')]))),
    /does not speak the protocol|did not answer in time/,
  ],
  [
    'sends columns of fewer bytes than it says',
    on('select *', (socket) => socket.write(message('T', int16(500)))),
    /does not speak the protocol/,
  ],
  [
    'has 32,000 columns',
    on('select *', (socket) =>
      socket.write(
        Buffer.concat([
          columns(Array.from({ length: 32_000 }, (_, index) => `column_${index}_${'x'.repeat(50)}`)),
          complete(),
          ready,
        ]),
      ),
    ),
    /more than 10000 columns/,
  ],
  [
    'sends several results for one statement',
    on('select *', (socket) =>
      socket.write(Buffer.concat([columns(names), complete(), columns(names), complete(), ready])),
    ),
    /several results/,
  ],
  [
    'sends a byte at a time',
    onFetch((socket) => {
      socket.write(Buffer.concat([fetched, begun]));
      const timer = setInterval(() => socket.writable && socket.write('x'), 50);
      socket.on('close', () => clearInterval(timer));
    }),
    /did not answer in time/,
  ],
  [
    'speaks HTTP',
    on('startup', (socket) => socket.write('HTTP/1.1 400 Bad Request\r\n\r\n')),
    /a message of \d+ bytes/,
  ],
  ['hangs up in the middle', onFetch((socket) => socket.end(begun)), /terminated|did not answer/],
])(
  'a Postgres server that %s fails the reading within seconds, with an error that explains it',
  async (_, behaviour, expected) => {
    const { error, milliseconds, stall, grown } = await read(behaviour);
    expect(error).toMatchObject({ name: 'SourceError', message: expect.stringMatching(expected) });
    expect(error!.message.length).toBeLessThanOrEqual(2001);
    expect(milliseconds).toBeLessThan(15_000);
    expect(stall).toBeLessThan(1000);
    expect(grown).toBeLessThan(300);
  },
);

test('500 rows of the maximum size are read without being in memory together', async () => {
  const rows = 500;
  const port = await serve(
    onFetch((socket) => {
      const whole = oneRow(megabyte);
      let sent = 0;
      const more = () => {
        if (sent >= rows) return;
        sent += 1;
        const last = sent === rows;
        socket.write(last ? Buffer.concat([complete('FETCH'), ready]) : whole, () => setImmediate(more));
      };
      socket.write(fetched, more);
    }),
  );
  const patience = { connect: 5000, answer: 5000, read: 60_000, perRow: 10, end: 500 };
  let most = 0;
  const ordeal = await endure(
    () =>
      openPostgres(
        { type: 'postgres', host: '127.0.0.1', port, database: 'd', table: 't', tls: 'off' },
        { user: 'u', password: 'p' },
        { serviceIdField: 'service_id', scratchBytes: 1, reach: createReach({ refused: 'none' }), patience },
      ),
    async (batch) => {
      most = Math.max(most, batch.length);
      await new Promise((resolve) => setTimeout(resolve, 5));
    },
  );
  expect(ordeal.error).toBeUndefined();
  // Rows of both statements: without a time and with one.
  expect(ordeal.rows).toBe(2 * (rows - 1));
  expect(most).toBeLessThan(20);
  expect(ordeal.stall).toBeLessThan(1000);
});
