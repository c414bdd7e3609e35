import { Consumer, type Message, MessagesStreamModes, stringDeserializers } from '@platformatic/kafka';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createReach } from '../../src/platform/reach.ts';
import { DeliveryError, type Message as StreamMessage } from '../../src/streams/destination.ts';
import { openKafka } from '../../src/streams/kafka.ts';
import { startKafka, type TestKafka } from '../setup/kafka.ts';
import { event } from '../workers/batch.ts';
import { apply, deliverStreams, soon, streamTo, useStore } from './scene.ts';

useStore();

const TOPIC = 'user-data';
let kafka: TestKafka;
let consumer: Consumer<string, string, string, string>;
const taken: Message<string, string, string, string>[] = [];

beforeAll(async () => {
  kafka = await startKafka();
  await kafka.admin.createTopics({ topics: [TOPIC], partitions: 3, replicas: 1 });
}, 180_000);

async function listen() {
  const deserializers = stringDeserializers;
  consumer = new Consumer({
    clientId: 'reader',
    groupId: 'readers',
    bootstrapBrokers: [kafka.broker],
    deserializers,
  });
  const messages = await consumer.consume({ topics: [TOPIC], mode: MessagesStreamModes.EARLIEST });
  messages.on('data', (message) => void taken.push(message));
  messages.on('error', () => {});
}
afterAll(() => consumer?.close(true));

const settings = () => ({ brokers: [kafka.broker], topic: TOPIC, tls: false });

// The id and the type of a message are also in its headers.
test("each user's messages stay in one partition, in order, and survive a killed broker", async () => {
  const { workspace, state } = await streamTo({ kind: 'kafka', settings: settings() });
  const running = deliverStreams();
  const users = ['ada', 'bob', 'cy', 'dee'];
  const round = (name: string) => apply(workspace, ...users.map((user) => event(user, name)));
  for (let index = 0; index < 10; index++) await round(`before-${index}`);
  await soon(async () => (await state()).delivered >= 40);

  await kafka.kill();
  for (let index = 0; index < 10; index++) await round(`after-${index}`);
  await soon(async () => ((await state()).failures ?? 0) > 0);
  expect((await state()).lastError).toMatch(/ECONNREFUSED|closed|connect/i);
  await kafka.start();
  await soon(async () => (await state()).delivered >= 80);
  await running.stop();

  await listen();
  const ids = () => new Set(taken.map(({ headers }) => headers.get('id')));
  await soon(async () => ids().size >= 80);
  const events = taken.map((message) => ({ ...message, payload: JSON.parse(message.value) }));
  expect(events.filter(({ payload, headers }) => payload.id !== headers.get('id'))).toEqual([]);
  expect(new Set(events.map(({ headers }) => headers.get('type')))).toEqual(new Set(['event']));
  for (const user of users) {
    const own = events.filter(({ payload }) => payload.user.external_id === user);
    expect(new Set(own.map(({ partition }) => partition)).size).toBe(1);
    expect(new Set(own.map(({ key }) => key)).size).toBe(1);
    // Repetitions are allowed, but not a change of order.
    const firsts = [...new Set(own.map(({ payload }) => payload.data.name))];
    const names = ['before', 'after'].flatMap((when) => Array.from({ length: 10 }, (_, n) => `${when}-${n}`));
    expect(firsts).toEqual(names);
  }
}, 120_000);

const message: StreamMessage = {
  ...{ id: 'one', type: 'event', time: '2026-11-24T08:00:00.000Z', workspaceId: 'w' },
  ...{ key: 'ada', user: null, data: '{}', position: '1' },
};

/** Returns the error of a delivery to these settings; undefined if it succeeds. */
async function trouble(given: Partial<Parameters<typeof openKafka>[0]>, envelope = '{}') {
  const destination = openKafka({ ...settings(), reach: createReach({ refused: 'none' }), ...given });
  try {
    await destination.deliver(
      { id: 'b', messages: [message], envelopes: [envelope] },
      new AbortController().signal,
    );
    return undefined;
  } catch (error) {
    expect(error).toBeInstanceOf(DeliveryError);
    return (error as Error).message;
  } finally {
    await destination.close();
  }
}

test('a broker that another broker names is validated before it receives anything', async () => {
  // The test's resolver reports a public address for the name; the broker itself tells clients to connect to
  // 127.0.0.1.
  const reach = createReach({ refused: 'private' }, (host, _options, answer) =>
    answer(null, [{ address: host === 'localhost' ? '93.184.215.14' : host, family: 4 }]),
  );
  const brokers = [kafka.broker.replace('127.0.0.1', 'localhost')];
  expect(await trouble({ brokers, reach })).toMatch(
    /^127\.0\.0\.1 is in a network that REFUSED_NETWORKS refuses/,
  );
}, 60_000);

test('an error that keeps messages from a topic is reported in one sentence', async () => {
  const sasl = { mechanism: 'PLAIN', user: 'penstock' } as const;
  expect(await trouble({ brokers: [kafka.guarded], sasl, password: 'secret' })).toBeUndefined();
  const sentences = {
    password: await trouble({ brokers: [kafka.guarded], sasl, password: 'wrong' }),
    topic: await trouble({ topic: 'nothing' }),
    networks: await trouble({ reach: createReach({ refused: 'private' }) }),
    name: await trouble({ brokers: ['kafka.invalid:9092'] }),
    port: await trouble({ brokers: ['127.0.0.1:9'] }),
    size: await trouble({}, `"${'x'.repeat(2_000_000)}"`),
    tls: await trouble({ tls: true, milliseconds: 3000 }),
  };
  expect(sentences).toMatchObject({
    password: expect.stringMatching(/authentication/i),
    topic: 'the topic nothing does not exist',
    networks: expect.stringContaining('REFUSED_NETWORKS'),
    name: expect.stringContaining('ENOTFOUND'),
    port: expect.stringContaining('ECONNREFUSED'),
    size: expect.stringMatching(/large/i),
    tls: expect.stringMatching(/TLS|SSL|no answer/i),
  });
}, 60_000);
