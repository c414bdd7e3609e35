import { isIP, type Socket } from 'node:net';
import type { GenericError, MessageToProduce, Producer } from '@platformatic/kafka';
import { within } from '../platform/lifecycle.ts';
import { importOptional } from '../platform/optional-package.ts';
import { type Reach, RefusedAddress } from '../platform/reach.ts';
import { type Batch, DeliveryError, type Destination } from './destination.ts';

/** One produce request, whole, with the connections that it needs. Shorter than a lease. */
const PATIENCE_MS = 15_000;
const CLOSING_MS = 2000;

/** Brokers take batches of 1 MiB unless told otherwise (`message.max.bytes`). */
const MOST = { messages: 1000, bytes: 900_000 };

/** As the client library names them. */
export const saslMechanisms = ['PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512'] as const;
export type SaslMechanism = (typeof saslMechanisms)[number];

/** As the settings of a destination hold it. */
export interface KafkaSettings {
  /** `host:port`, the first that are asked for the others. */
  brokers: string[];
  topic: string;
  tls: boolean;
  /** Absent: nobody is asked who we are. */
  sasl?: { mechanism: SaslMechanism; user: string };
}

export interface KafkaOptions extends KafkaSettings {
  password?: string;
  reach: Reach;
  milliseconds?: number;
}

const MOST_BROKERS = 20;
const BROKER = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]{1,253}):(\d{1,5})$/i;
/** Of Kafka itself. */
const TOPIC = /^(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}$/;

/** @returns which rule they break, to stand behind their name; undefined if none */
export function refusalOfBrokers(brokers: string[]): string | undefined {
  if (brokers.length === 0 || brokers.length > MOST_BROKERS) return `must be 1 to ${MOST_BROKERS}`;
  const odd = brokers.find((one) => !BROKER.test(one) || partsOf(one).port > 65_535 || partsOf(one).port < 1);
  return odd === undefined ? undefined : 'must be host:port, with several separated by commas';
}

/** @returns which rule it breaks, to stand behind its name; undefined if none */
export function refusalOfTopic(topic: string): string | undefined {
  return TOPIC.test(topic) ? undefined : 'must be 1 to 249 letters, digits, dots, underscores or hyphens';
}

/** Whether what is stored is what we store. */
export function isKafkaSettings(settings: object): settings is KafkaSettings {
  const { brokers, topic, tls, sasl } = settings as Partial<KafkaSettings>;
  if (!Array.isArray(brokers) || !brokers.every((one) => typeof one === 'string')) return false;
  if (refusalOfBrokers(brokers) || typeof topic !== 'string' || refusalOfTopic(topic)) return false;
  if (sasl && !(saslMechanisms.includes(sasl.mechanism) && typeof sasl.user === 'string')) return false;
  return typeof tls === 'boolean';
}

/** Of `host:port`, without brackets. */
export const hostOf = (broker: string): string => partsOf(broker).host;

function partsOf(broker: string): { host: string; port: number } {
  const [, host = '', port] = BROKER.exec(broker) ?? [];
  return { host: host.replace(/^\[(.*)\]$/, '$1'), port: Number(port) };
}

/**
 * Messages to a topic, keyed by user, so that those of one user are in one partition and keep their order. The value is
 * the envelope, the headers `id` and `type` are its own. A batch is delivered when all replicas in sync have it.
 *
 * The client neither retries nor asks again who leads. A batch that failed comes again from the cursor, by a new
 * client, and so every broker has been judged before it is connected to. It resolves names itself: with TLS the address
 * is judged once more as the connection is made, without it a name that leads elsewhere a moment after is not seen.
 */
export function openKafka(options: KafkaOptions): Destination {
  const { brokers, topic, reach, milliseconds = PATIENCE_MS } = options;
  let producer: Producer<Buffer, Buffer, Buffer, Buffer> | undefined;
  let opened: Promise<Producer<Buffer, Buffer, Buffer, Buffer>> | undefined;

  // The client is given names, and tries all addresses of each.
  async function open() {
    for (const broker of brokers) await reach.requireWhollyAllowed(hostOf(broker));
    producer = await createProducer(options, milliseconds);
    const { brokers: found } = await producer.metadata({ topics: [topic] }).catch((error) => {
      throw saysUnknownTopic(error) ? new DeliveryError(`the topic ${topic} does not exist`) : error;
    });
    for (const { host } of found.values()) await reach.requireWhollyAllowed(host);
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
    most: MOST,
    async deliver(batch, signal) {
      try {
        await within(milliseconds, send(batch), {
          signal,
          late: () => new DeliveryError(`no answer within ${milliseconds / 1000} s`),
        });
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        throw toDeliveryError(error);
      }
    },
    async close() {
      await within(CLOSING_MS, Promise.resolve(producer?.close())).catch(() => {});
    },
  };
}

/** Milliseconds for which a client knows who leads: longer than it lives, since who is named later would not be judged. */
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
    // An address is no name of a server.
    ...(tls && { tls: { lookup: reach.lookup }, tlsServerName: !brokers.some((one) => isIP(hostOf(one))) }),
    ...(sasl && {
      sasl: { mechanism: sasl.mechanism, username: sasl.user, password: password ?? '' },
    }),
  });
  for (const event of ['client:broker:connect', 'client:broker:failed'] as const)
    producer.on(event, ({ connection }) => guard(connection));
  return producer;
}

/** Bytes of one response: the metadata of a topic with 10,000 partitions has about half of that. */
const MAX_RESPONSE_BYTES = 1_048_576;

type Connection = { on(event: 'error', listener: () => void): unknown; socket: Socket };

/**
 * Keeps a broker from ending the process. The client listens for the first error of a connection only, and a second one
 * would be an uncaught exception; it also takes a response of any length into memory.
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

/** npm omits the client on Node versions that the client does not support. */
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

const saysUnknownTopic = (error: unknown) =>
  (error as Partial<GenericError>).findBy?.('apiId', 'UNKNOWN_TOPIC_OR_PARTITION') != null;

/** The innermost reason says most: the outer ones tell that something failed. */
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
