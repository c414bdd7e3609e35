import { type AddressInfo, createServer, type Socket } from 'node:net';
import { afterAll, expect, test } from 'vitest';
import { createReach } from '../../src/platform/reach.ts';
import { DeliveryError } from '../../src/streams/destination.ts';
import { openKafka } from '../../src/streams/kafka.ts';
import { waitUntil } from '../setup/fixtures.ts';

const batch = { id: 'b', messages: [], envelopes: [] };

/** Returns a response to no request. */
const unasked = () => {
  const bytes = Buffer.alloc(12);
  bytes.writeInt32BE(8, 0);
  bytes.writeInt32BE(999_999, 4);
  return bytes;
};

/** Header of a response that is longer than any broker sends, followed by as many bytes as are read. */
const endless = Buffer.concat([Buffer.from([0x7f, 0xff, 0xff, 0x00]), Buffer.alloc(65_536)]);

interface Broker {
  broker: string;
  sockets: Socket[];
  sent: () => number;
}

/** Starts a broker that handles its first request with `answer`. */
async function startBroker(answer: (socket: Socket) => void): Promise<Broker> {
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on('error', () => {});
    socket.once('data', () => answer(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  afterAll(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const sent = () => sockets.reduce((sum, { bytesWritten }) => sum + bytesWritten, 0);
  return { broker: `127.0.0.1:${port}`, sockets, sent };
}

async function deliverTo(broker: string): Promise<unknown> {
  const reach = createReach({ refused: 'none' });
  const destination = openKafka({ brokers: [broker], topic: 't', tls: false, reach, milliseconds: 3000 });
  const delivered = destination.deliver(batch, new AbortController().signal);
  const error = await delivered.catch((reason: unknown) => reason);
  await destination.close();
  return error;
}

test('a Kafka broker that sends unrequested responses fails only its own delivery', async () => {
  const { broker, sockets } = await startBroker((socket) => {
    // One at a time, so that each causes a separate error.
    let left = 5;
    const next = () => {
      if (left-- > 0) socket.write(unasked(), () => setImmediate(next));
      else socket.destroy();
    };
    next();
  });
  expect(await deliverTo(broker)).toBeInstanceOf(DeliveryError);
  await waitUntil(() => sockets.every(({ destroyed }) => destroyed), { what: 'the end of the connection' });
});

test('a Kafka broker that sends an endless response is disconnected after 1 MB', async () => {
  const { broker, sockets, sent } = await startBroker((socket) => {
    const more = () => {
      while (!socket.destroyed && socket.bytesWritten < 67_108_864 && socket.write(endless.subarray(4)));
    };
    socket.write(endless);
    socket.on('drain', more);
    more();
  });
  expect(await deliverTo(broker)).toBeInstanceOf(DeliveryError);
  await waitUntil(() => sockets.every(({ destroyed }) => destroyed), { what: 'the end of the connection' });
  expect(sent()).toBeLessThan(33_554_432);
});
