import { isIP, type Socket } from 'node:net';
import type { GenericError, MessageToProduce, Producer } from '@platformatic/kafka';
import { withTimeout } from '../platform/lifecycle.ts';
import { importOptional } from '../platform/optional-package.ts';
import { type Reach, RefusedAddress } from '../platform/reach.ts';
import { type Batch, DeliveryError, type Destination } from './destination.ts';

/** Milliseconds for a produce request including its connections. It is shorter than a lease. */
const TIMEOUT_MS = 15_000;
const CLOSING_MS = 2000;

/**
 * Maximum messages and bytes of a batch. Brokers accept batches of 1 MiB by default (`message.max.bytes`).
 */
const MAX_BATCH = { messages: 1000, bytes: 900_000 };

/** SASL mechanisms under the names of the client library. */
export const saslMechanisms = ['PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512'] as const;
export type SaslMechanism = (typeof saslMechanisms)[number];

/** Settings of a Kafka destination, as they are stored. */
interface KafkaSettings {
  /** Bootstrap brokers as `host:port`. */
  brokers: string[];
  topic: string;
  tls: boolean;
  /** Absent if the brokers do not require authentication. */
  sasl?: { mechanism: SaslMechanism; user: string };
}

interface KafkaOptions extends KafkaSettings {
  password?: string;
  reach: Reach;
  milliseconds?: number;
}

const MAX_BROKERS = 20;
const BROKER = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]{1,253}):(\d{1,5})$/i;
/** Topic names that Kafka allows. */
const TOPIC = /^(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}$/;

/** @returns the rule that the brokers break, as a predicate for their name; undefined if they are valid */
export function refusalOfBrokers(brokers: string[]): string | undefined {
  if (brokers.length === 0 || brokers.length > MAX_BROKERS) return `must be 1 to ${MAX_BROKERS}`;
  const invalid = brokers.find(
    (one) => !BROKER.test(one) || partsOf(one).port > 65_535 || partsOf(one).port < 1,
  );
  return invalid === undefined ? undefined : 'must be host:port, with several separated by commas';
}

/** @returns the rule that the topic breaks, as a predicate for its name; undefined if it is valid */
export function refusalOfTopic(topic: string): string | undefined {
  return TOPIC.test(topic) ? undefined : 'must be 1 to 249 letters, digits, dots, underscores or hyphens';
}

/** Returns whether stored settings have the expected form. */
export function isKafkaSettings(settings: object): settings is KafkaSettings {
  const { brokers, topic, tls, sasl } = settings as Partial<KafkaSettings>;
  if (!Array.isArray(brokers) || !brokers.every((one) => typeof one === 'string')) return false;
  if (refusalOfBrokers(brokers) || typeof topic !== 'string' || refusalOfTopic(topic)) return false;
  if (sasl && !(saslMechanisms.includes(sasl.mechanism) && typeof sasl.user === 'string')) return false;
  return typeof tls === 'boolean';
}

/** Returns the host of `host:port` without brackets. */
export const hostOf = (broker: string): string => partsOf(broker).host;

function partsOf(broker: string): { host: string; port: number } {
  const [, host = '', port] = BROKER.exec(broker) ?? [];
  return { host: host.replace(/^\[(.*)\]$/, '$1'), port: Number(port) };
}

/**
 * Opens a destination for a Kafka topic. Messages are keyed by user, so the messages of a user are in one
 * partition and keep their order. The value is the envelope, and the headers are its `id` and `type`. A batch
 * is delivered when all in-sync replicas have it.
 *
 * The client neither retries nor refreshes its metadata. A failed batch is sent again from the cursor by a
 * new client, so the address of every broker is checked before a connection to it. The client resolves names
 * itself: with TLS the address is checked once more when the connection is made; without TLS, a name that
 * changes its address in between is not detected.
 */
export function openKafka(options: KafkaOptions): Destination {
  const { brokers, topic, reach, milliseconds = TIMEOUT_MS } = options;
  let producer: Producer<Buffer, Buffer, Buffer, Buffer> | undefined;
  let opened: Promise<Producer<Buffer, Buffer, Buffer, Buffer>> | undefined;

  // The client gets names and tries all addresses of each name, so all addresses must be allowed.
  async function open() {
    for (const broker of brokers) await reach.requireWhollyAllowed(hostOf(broker));
    producer = await createProducer(options, milliseconds);
    const { brokers: clusterBrokers } = await producer.metadata({ topics: [topic] }).catch((error) => {
      throw isUnknownTopic(error) ? new DeliveryError(`the topic ${topic} does not exist`) : error;
    });
    for (const { host } of clusterBrokers.values()) await reach.requireWhollyAllowed(host);
    return producer;
  }

  async function send({ messages, envelopes }: Batch): Promise<void> {
    opened ??= open();
    const reached = await opened;
    if (messages.length === 0) return;
    await reached.send({
      messages: messages.map(
        ({ id, type, key }, index): MessageToProduce<Buffer, Buffer, Buffer, Buffer> => ({
          topic,
          key: Buffer.from(key),
          value: Buffer.from(envelopes[index]!),
          headers: new Map([
            [Buffer.from('id'), Buffer.from(id)],
            [Buffer.from('type'), Buffer.from(type)],
          ]),
        }),
      ),
    });
  }

  return {
    limits: MAX_BATCH,
    async deliver(batch, signal) {
      try {
        await withTimeout(milliseconds, send(batch), {
          signal,
          late: () => new DeliveryError(`no answer within ${milliseconds / 1000} s`),
        });
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        throw toDeliveryError(error);
      }
    },
    async close() {
      await withTimeout(CLOSING_MS, Promise.resolve(producer?.close())).catch(() => {});
    },
  };
}

/**
 * Milliseconds for which the client caches its metadata. It is longer than the life of a client, because
 * brokers that appear later would not be checked.
 */
const METADATA_MS = 86_400_000;

async function createProducer({ brokers, tls, sasl, password, reach }: KafkaOptions, milliseconds: number) {
  const { Producer } = await loadClient();
  const producer = new Producer<Buffer, Buffer, Buffer, Buffer>({
    clientId: 'penstock',
    bootstrapBrokers: brokers.map(partsOf),
    acks: -1,
    retries: 0,
    idempotent: false,
    repeatOnStaleMetadata: false,
    autocreateTopics: false,
    metadataMaxAge: METADATA_MS,
    connectTimeout: milliseconds,
    timeout: milliseconds,
    // TLS server names must not be IP addresses.
    ...(tls && { tls: { lookup: reach.lookup }, tlsServerName: !brokers.some((one) => isIP(hostOf(one))) }),
    ...(sasl && {
      sasl: { mechanism: sasl.mechanism, username: sasl.user, password: password ?? '' },
    }),
  });
  for (const event of ['client:broker:connect', 'client:broker:failed'] as const)
    producer.on(event, ({ connection }) => guard(connection));
  return producer;
}

/** Maximum bytes of a response. The metadata of a topic with 10,000 partitions has about half of that. */
const MAX_RESPONSE_BYTES = 1_048_576;

type Connection = { on(event: 'error', listener: () => void): unknown; socket: Socket };

/**
 * Prevents a broker from ending the process. The client listens only for the first error of a connection, so
 * a second one would be an uncaught exception, and it reads responses of any length into memory.
 */
function guard(connection: Connection): void {
  const { socket } = connection;
  connection.on('error', () => socket.destroy());
  const head = Buffer.alloc(4);
  let [filled, left] = [0, 0];
  socket.on('data', (chunk: Buffer) => {
    for (let at = 0; at < chunk.length; ) {
      if (left > 0) {
        const skipped = Math.min(left, chunk.length - at);
        left -= skipped;
        at += skipped;
        continue;
      }
      head[filled++] = chunk[at++]!;
      if (filled < head.length) continue;
      [filled, left] = [0, head.readUInt32BE()];
      if (left > MAX_RESPONSE_BYTES)
        return void socket.destroy(new Error(`the broker sent a response of ${left} bytes`));
    }
  });
}

/** npm does not install the client on Node versions that the client does not support. */
const loadClient = () =>
  importOptional(
    {
      name: '@platformatic/kafka',
      users: 'streams to Kafka',
      alternative: ' on Node 20.19.4, 22.18, 24.6 or newer',
    },
    () => import('@platformatic/kafka'),
    (message, options) => new DeliveryError(message, options),
  );

const isUnknownTopic = (error: unknown) =>
  (error as Partial<GenericError>).findBy?.('apiId', 'UNKNOWN_TOPIC_OR_PARTITION') != null;

/** Returns the innermost cause, because the outer errors only state that a request failed. */
function toDeliveryError(error: unknown): DeliveryError {
  if (error instanceof DeliveryError) return error;
  let reason = error as Error;
  for (let depth = 0; depth < 10; depth++) {
    const inner = (reason as { errors?: unknown[] }).errors?.[0] ?? reason.cause;
    if (!(inner instanceof Error) || reason instanceof RefusedAddress) break;
    reason = inner;
  }
  const code = (reason as { code?: unknown }).code;
  return new DeliveryError(reason.message || String(code ?? reason.name), { cause: error });
}
