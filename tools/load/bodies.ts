import {
  badObject,
  goodObject,
  type TrafficKind,
  type TrafficObject,
  trafficKinds,
  USER_MARK,
} from './traffic.ts';

/** A whole request, head and body, ready to be written; the users in it change from one sending to the next. */
export interface Message {
  bytes: Buffer;
  /** Where each user's eight digits begin. */
  users: number[];
}

export interface BodyOptions {
  /** Objects per request, or the fewest and the most: the three kinds in turn. */
  objects: number | readonly [least: number, most: number];
  /** Share of objects that will be refused. */
  badShare: number;
  /** The three kinds, unless these. */
  kinds?: readonly TrafficKind[];
  /** How many names events have; absent: those of the traffic. */
  eventNames?: number;
}

/**
 * How often each user comes. `few-often`: the lower the number, the more often; `evenly`: all alike; `tenth`: a tenth of the
 * users has nine tenths of the objects.
 */
export type Spread = 'few-often' | 'evenly' | 'tenth';

/** Says whose the next object is. */
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
 * Makes `count` different messages ahead, so that sending one costs no more than writing its user ids.
 *
 * @param head the request's head up to, but without, Content-Length
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
  const [least, most] = objects;
  return least + Math.floor(random() * (most - least + 1));
}

export function toMessage(head: string, body: string): Message {
  const bytes = Buffer.from(`${head}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
  const users: number[] = [];
  for (let at = bytes.indexOf(mark); at >= 0; at = bytes.indexOf(mark, at + mark.length)) {
    users.push(at + mark.length - DIGITS);
  }
  return { bytes, users };
}

/** Gives every object of the message a user. */
export function assignUsers({ bytes, users }: Message, pickUser: () => number): void {
  for (const at of users) writeDigits(bytes, at, pickUser());
}

/** Lets a message be of the workspace that has this key. @param at where the key that it was made with begins */
export function assignKey({ bytes }: Message, key: string, at: number): void {
  bytes.write(key, at, 'latin1');
}

/** Gives the objects the users `first`, `first` + 1 and so on. */
export function assignUsersFrom({ bytes, users }: Message, first: number): void {
  users.forEach((at, index) => {
    writeDigits(bytes, at, first + index);
  });
}

function writeDigits(bytes: Buffer, at: number, value: number): void {
  let rest = value;
  for (let place = at + DIGITS - 1; place >= at; place--) {
    bytes[place] = ZERO + (rest % 10);
    rest = Math.floor(rest / 10);
  }
}

/** A head for POSTs of JSON with a key; Content-Length and the empty line come with the body. */
export function postHead(host: string, path: string, key: string): string {
  return (
    `POST ${path} HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${key}\r\n` +
    'Content-Type: application/json\r\nConnection: keep-alive\r\n'
  );
}

/** Any one of the messages, taken out of the pool while it is being sent. */
export function takeMessage(pool: Message[], random: () => number): Message {
  const index = Math.floor(random() * pool.length);
  const message = pool[index]!;
  pool[index] = pool.at(-1)!;
  pool.pop();
  return message;
}
