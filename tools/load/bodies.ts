import {
  badObject,
  goodObject,
  type TrafficKind,
  type TrafficObject,
  trafficKinds,
  USER_MARK,
} from './traffic.ts';

/** A complete request, header and body, as bytes. Its users are replaced before each sending. */
export interface Message {
  bytes: Buffer;
  /** Offsets of each user's eight digits. */
  users: number[];
}

export interface BodyOptions {
  /** Objects per request, or a range of them. The three kinds take turns. */
  objects: number | readonly [min: number, max: number];
  /** Share of objects that will be rejected. */
  badShare: number;
  /** Kinds of objects; by default all three. */
  kinds?: readonly TrafficKind[];
  /** Number of different event names; by default the names of the traffic. */
  eventNames?: number;
}

/**
 * Distribution of the objects over the users. `few-often`: the lower the number, the more frequent; `evenly`:
 * uniform; `tenth`: a tenth of the users have nine tenths of the objects.
 */
export type Spread = 'few-often' | 'evenly' | 'tenth';

/** Returns a function that chooses the user of the next object. */
export function userPicker(
  { users, spread = 'few-often' }: { users: number; spread?: Spread | undefined },
  random: () => number,
): () => number {
  const positions: Record<Spread, () => number> = {
    'few-often': () => random() ** 2,
    evenly: random,
    tenth: () => (random() < 0.9 ? random() * 0.1 : 0.1 + random() * 0.9),
  };
  const position = positions[spread];
  return () => Math.floor(position() * users);
}

const DIGITS = USER_MARK.length - USER_MARK.indexOf('#');
const mark = Buffer.from(USER_MARK);
const ZERO = 0x30;

/**
 * Creates `count` different messages in advance, so that sending a message only costs writing its user ids.
 *
 * @param head header of the request up to, but without, Content-Length
 * @param now epoch milliseconds
 */
export function makeMessages(
  count: number,
  head: string,
  options: BodyOptions,
  random: () => number,
  now: number,
): Message[] {
  let kind = 0;
  const kinds = options.kinds ?? trafficKinds;
  const nextKind = () => kinds[kind++ % kinds.length]!;
  return Array.from({ length: count }, () => {
    const body: Partial<Record<TrafficKind, TrafficObject[]>> = {};
    for (let left = countOf(options.objects, random); left > 0; left--) {
      const kindOfThis = nextKind();
      const make = random() < options.badShare ? badObject : goodObject;
      const object = make(kindOfThis, random, now);
      if (options.eventNames !== undefined && object.name !== undefined)
        object.name = `event_${Math.floor(random() * options.eventNames)}`;
      body[kindOfThis] ??= [];
      body[kindOfThis].push(object);
    }
    return toMessage(head, JSON.stringify(body));
  });
}

function countOf(objects: BodyOptions['objects'], random: () => number): number {
  if (typeof objects === 'number') return objects;
  const [min, max] = objects;
  return min + Math.floor(random() * (max - min + 1));
}

export function toMessage(head: string, body: string): Message {
  const bytes = Buffer.from(`${head}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
  const users: number[] = [];
  for (let at = bytes.indexOf(mark); at >= 0; at = bytes.indexOf(mark, at + mark.length)) {
    users.push(at + mark.length - DIGITS);
  }
  return { bytes, users };
}

/** Assigns a user to every object of the message. */
export function assignUsers({ bytes, users }: Message, pickUser: () => number): void {
  for (const at of users) writeDigits(bytes, at, pickUser());
}

/** Replaces the API key of a message. @param at offset of the key that it was created with */
export function assignKey({ bytes }: Message, key: string, at: number): void {
  bytes.write(key, at, 'latin1');
}

/** Assigns the users `first`, `first` + 1 and so on to the objects. */
export function assignUsersFrom({ bytes, users }: Message, first: number): void {
  users.forEach((at, index) => {
    writeDigits(bytes, at, first + index);
  });
}

function writeDigits(bytes: Buffer, at: number, value: number): void {
  let rest = value;
  for (let offset = at + DIGITS - 1; offset >= at; offset--) {
    bytes[offset] = ZERO + (rest % 10);
    rest = Math.floor(rest / 10);
  }
}

/** Returns the header of a POST of JSON with a key. `toMessage` adds Content-Length and the empty line. */
export function postHead(host: string, path: string, key: string): string {
  return (
    `POST ${path} HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${key}\r\n` +
    'Content-Type: application/json\r\nConnection: keep-alive\r\n'
  );
}

/** Removes a random message from the pool. It must be added again after it was sent. */
export function takeMessage(pool: Message[], random: () => number): Message {
  const index = Math.floor(random() * pool.length);
  const message = pool[index]!;
  pool[index] = pool.at(-1)!;
  pool.pop();
  return message;
}
