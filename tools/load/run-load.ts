import { setTimeout as sleep } from 'node:timers/promises';
import type { Address } from './address.ts';
import {
  assignKey,
  assignUsers,
  type BodyOptions,
  type Message,
  makeMessages,
  postHead,
  type Spread,
  takeMessage,
  userPicker,
} from './bodies.ts';
import { type Answer, HttpConnection } from './http-connection.ts';
import { createLatencies, type LatencySummary } from './latencies.ts';
import type { Observer } from './observer.ts';
import { createPace } from './pace.ts';
import { type ProbeResult, runProbes } from './probes.ts';
import { createRandom } from './random.ts';
import { countAnswer, countError, emptyTally, type Tally } from './tally.ts';

export interface LoadOptions extends BodyOptions {
  target: Address;
  key: string;
  /** API keys of several workspaces, used in turn and each as long as `key`; by default only `key`. */
  keys?: readonly string[];
  /** Sending ends after this time or after `maxRequests`, whichever is first. */
  seconds: number;
  maxRequests: number;
  connections: number;
  users: number;
  spread?: Spread;
  /** Requests per second; 0 sends as fast as possible. */
  rate: number;
  /** Observer of applied objects; if absent, they are not measured. */
  observer?: Observer;
  /** Whether to measure the time from accepted to readable as well. */
  probe: boolean;
  /** Maximum seconds to wait after the last response until all accepted objects are applied. */
  drainSeconds: number;
  /** Called several times a second. */
  onProgress?(tally: Tally, seconds: number): void;
}

export interface LoadResult {
  tally: Tally;
  /** Seconds from the first request to the last response. */
  seconds: number;
  /** Applied objects, and the seconds from the first request until all accepted objects are applied. */
  applied?: { objects: number; seconds: number; complete: boolean };
  /** Time from a request to the response that accepted it. */
  accept: LatencySummary | undefined;
  probes?: ProbeResult;
  /** Cores that the generator itself used while it sent. */
  generatorCores: number;
}

/** Number of messages in the pool in addition to the messages that are being sent. */
const POOL = 300;
const PROGRESS_MS = 250;

/** Sends traffic, then waits until all accepted objects are applied. */
export async function runLoad(options: LoadOptions): Promise<LoadResult> {
  const { target, key, keys, observer } = options;
  const random = createRandom(Date.now());
  const head = postHead(`${target.host}:${target.port}`, '/users/track', key);
  const pool = makeMessages(POOL + options.connections, head, options, random, Date.now());
  const pickUser = userPicker(options, random);
  const tally = emptyTally();
  const latencies = createLatencies();
  const appliedBefore = (await observer?.applied()) ?? 0;

  const start = performance.now();
  const cpu = process.cpuUsage();
  const end = start + options.seconds * 1000;
  const pace = createPace(options.rate, start, end);
  const elapsed = () => (performance.now() - start) / 1000;
  const progress = setInterval(() => options.onProgress?.(tally, elapsed()), PROGRESS_MS);
  const keyAt = head.indexOf(key);
  let turn = 0;
  let left = options.maxRequests;

  const probing =
    options.probe && observer
      ? runProbes({ ...target, key, observer, end }, tally)
      : Promise.resolve(undefined);
  await Promise.all(Array.from({ length: options.connections }, sendAlone));
  const seconds = elapsed();
  const { user, system } = process.cpuUsage(cpu);
  const generatorCores = (user + system) / 1e6 / seconds;
  const probes = await probing;
  clearInterval(progress);
  options.onProgress?.(tally, elapsed());

  const applied = observer && (await drain(observer));
  return {
    tally,
    seconds,
    ...(applied && { applied }),
    accept: latencies.summary(),
    ...(probes && { probes }),
    generatorCores,
  };

  /** Sends requests over one connection, one after the other. */
  async function sendAlone(): Promise<void> {
    const connection = new HttpConnection(target);
    while (left > 0 && performance.now() < end) {
      left--;
      const from = await pace.next();
      if (performance.now() >= end) break;
      const message = takeMessage(pool, random);
      assignUsers(message, pickUser);
      if (keys) assignKey(message, keys[turn++ % keys.length]!, keyAt);
      await exchange(connection, message, from);
    }
    connection.close();
  }

  async function exchange(connection: HttpConnection, message: Message, from: number): Promise<void> {
    try {
      const answer = await connection.send(message.bytes);
      if (answer.status === 201) latencies.add(performance.now() - from);
      countAnswer(tally, answer);
      pool.push(message);
      await waitForRetryAfter(answer);
    } catch (error) {
      // Add a copy to the pool, because the socket may still hold the message.
      pool.push({ bytes: Buffer.from(message.bytes), users: message.users });
      countError(tally, `connection: ${(error as NodeJS.ErrnoException).code ?? (error as Error).message}`);
      await sleep(Math.min(100, Math.max(0, end - performance.now())));
    }
  }

  /** Waits as the response requests, like a client that respects Retry-After. */
  async function waitForRetryAfter({ status, head }: Answer): Promise<void> {
    if (status !== 429 && status !== 503) return;
    const after = Number(/\r\nretry-after: *(\d+)/i.exec(head)?.[1] ?? 1) * 1000;
    await sleep(Math.min(after, Math.max(0, end - performance.now())));
  }

  async function drain(source: Observer) {
    const deadline = performance.now() + options.drainSeconds * 1000;
    for (;;) {
      const objects = (await source.applied()) - appliedBefore;
      const complete = objects >= tally.accepted;
      if (complete || performance.now() > deadline) return { objects, seconds: elapsed(), complete };
      await sleep(source.readEvery);
    }
  }
}
