/**
 * Sends the requests of a quiet workspace at a steady rate, and checks when their profiles can be read. It is
 * a separate process, because sending the noisy traffic in the same process would delay the measurement.
 * Reads its options from the environment; prints a `QuietRun`.
 */
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { idBytes } from '../../src/jobs/traces.ts';
import { floorOf } from '../../src/platform/ids.ts';
import { hashApiKey } from '../../src/store/credentials.ts';
import { postHead, toMessage } from '../load/bodies.ts';
import { HttpConnection } from '../load/http-connection.ts';
import { createLatencies, type LatencySummary } from '../load/latencies.ts';

/** Requests per second, each with one new profile. */
const RATE = 40;

/**
 * Milliseconds between two checks for new profiles. One statement checks all of them, because checks take
 * processor time as well.
 */
const CHECK_MS = 4;

/** Milliseconds after which a missing profile is an error. */
const TIMEOUT_MS = 60_000;

/**
 * Stages of a request's latency. `arrive`: from its due time until web has read its header. `pack`: until its
 * envelope was created. `queued`: until a worker has claimed the envelope. `applied`: until its profile can
 * be read.
 */
export type Stage = 'arrive' | 'pack' | 'queued' | 'applied';

export interface QuietRun {
  /** Time from a request's due time until its response, and until its profile could be read. */
  accept: LatencySummary;
  readable: LatencySummary;
  stages: Record<Stage, LatencySummary>;
  /**
   * Event-loop lag of this process, p99 in milliseconds. Up to this much of the latency may be caused by this
   * process.
   */
  lag: number;
}

/** Times of one request in epoch milliseconds. */
interface Sent {
  due: number;
  answered?: number;
  requestId?: string;
  claimed?: number;
  readable?: number;
}

/**
 * Uses the unique index profiles_external_id. The creation time of a new profile is the time of the statement
 * that claimed its envelope.
 */
const findProfiles = `
  select profiles.external_id as id, (extract(epoch from profiles.created_at) * 1000)::float8 as claimed
  from profiles
  where profiles.workspace_id = (select workspace_id from api_keys where key_hash = $1)
    and profiles.external_id = any($2::text[])`;

/** Reads a range of the primary key. */
const findEnvelopes = `
  select ledger.envelope_id::text as id, ledger.requests as traces
  from ledger
  where ledger.envelope_id >= $1::uuid and position($2::bytea in ledger.requests) > 0`;

const { HOST, PORT, KEY, DATABASE_URL, SECONDS } = process.env as Record<string, string>;
const target = { host: HOST!, port: Number(PORT) };
const pool = new pg.Pool({ connectionString: DATABASE_URL!, max: 1 });
const head = postHead(`${HOST}:${PORT}`, '/users/track', KEY!);

const now = () => performance.timeOrigin + performance.now();

/** Returns the time with which an id begins. */
const timeIn = (id: string) => Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16);

/**
 * Sends requests at a steady rate without waiting for the responses to previous ones, so that a slow response
 * does not delay the measurement of the others.
 */
async function sendAll(seconds: number): Promise<Sent[]> {
  const idle: HttpConnection[] = [];
  const run = Date.now().toString(36);
  const all: Sent[] = [];
  /** Requests whose profile cannot be read yet. */
  const awaited = new Map<string, Sent>();

  async function sendOne(number: number, sent: Sent): Promise<void> {
    const externalId = `quiet-${run}-${number}`;
    const connection = idle.pop() ?? new HttpConnection(target);
    const body = JSON.stringify({ attributes: [{ external_id: externalId, number }] });
    const answer = await connection.send(toMessage(head, body).bytes);
    idle.push(connection);
    if (answer.status !== 201) throw new Error(`the quiet workspace was refused: ${answer.status}`);
    sent.answered = now();
    sent.requestId = /\r\nx-request-id: *(\S+)/i.exec(answer.head)![1]!;
    awaited.set(externalId, sent);
  }

  let isSending = true;
  async function checkProfiles(): Promise<void> {
    while (isSending || awaited.size > 0) {
      await sleep(CHECK_MS);
      if (awaited.size === 0) continue;
      const { rows } = await pool.query<{ id: string; claimed: number }>({
        name: 'find-quiet',
        text: findProfiles,
        values: [hashApiKey(KEY!), [...awaited.keys()]],
      });
      const readable = now();
      for (const { id, claimed } of rows) {
        Object.assign(awaited.get(id)!, { claimed, readable });
        awaited.delete(id);
      }
      for (const { due } of awaited.values())
        if (readable - due > TIMEOUT_MS) throw new Error('a profile of the quiet workspace did not come');
    }
  }

  const looking = checkProfiles();
  const sending: Promise<void>[] = [];
  const start = now();
  for (let number = 0; number < RATE * seconds; number++) {
    const due = start + (number * 1000) / RATE;
    await sleep(Math.max(0, due - now()));
    all.push({ due });
    sending.push(sendOne(number, all.at(-1)!));
  }
  await Promise.all(sending);
  isSending = false;
  await looking;
  for (const connection of idle) connection.close();
  return all;
}

/** Returns the time at which the envelope of each request was created. */
async function packedAt(all: Sent[]): Promise<number[]> {
  const packed: number[] = [];
  for (const { requestId } of all) {
    const from = floorOf(timeIn(requestId!));
    const { rows } = await pool.query<{ id: string }>({
      ...{ name: 'find-envelopes', text: findEnvelopes, values: [from, idBytes(requestId!)] },
    });
    packed.push(timeIn(rows[0]!.id));
  }
  return packed;
}

function summaryOf(values: number[]): LatencySummary {
  const latencies = createLatencies();
  for (const value of values) latencies.add(Math.max(0, value));
  return latencies.summary()!;
}

async function main(): Promise<void> {
  const loop = monitorEventLoopDelay({ resolution: 1 });
  loop.enable();
  const all = await sendAll(Number(SECONDS));
  loop.disable();
  const packed = await packedAt(all);
  const run: QuietRun = {
    accept: summaryOf(all.map(({ due, answered }) => answered! - due)),
    readable: summaryOf(all.map(({ due, readable }) => readable! - due)),
    stages: {
      arrive: summaryOf(all.map(({ due, requestId }) => timeIn(requestId!) - due)),
      pack: summaryOf(all.map(({ requestId }, index) => packed[index]! - timeIn(requestId!))),
      queued: summaryOf(all.map(({ claimed }, index) => claimed! - packed[index]!)),
      applied: summaryOf(all.map(({ claimed, readable }) => readable! - claimed!)),
    },
    lag: loop.percentile(99) / 1e6,
  };
  await pool.end();
  process.stdout.write(JSON.stringify(run));
}

await main();
