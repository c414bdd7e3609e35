/**
 * Sends the requests of a quiet workspace at a steady rate, and looks when their profiles can be read. A process of its
 * own: a flood that is sent from the same one would delay what is measured. Told by its environment; prints a `QuietRun`.
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

/** Requests a second, each of one new profile. */
const RATE = 40;

/** Milliseconds between two looks which profiles are there: one statement for all, since looking costs the machine as well. */
const LOOK_AGAIN = 4;

/** Milliseconds after which nobody looks any more. */
const PATIENCE = 60_000;

/**
 * Where the time of a request goes. `arrive`: from the time at which it was due until web has read its head. `pack`: until
 * its envelope is made. `queued`: until a worker has claimed that. `applied`: until its profile can be read.
 */
export type Stage = 'arrive' | 'pack' | 'queued' | 'applied';

export interface QuietRun {
  /** From the time at which a request was due until its answer, and until its profile could be read. */
  accept: LatencySummary;
  readable: LatencySummary;
  stages: Record<Stage, LatencySummary>;
  /** Of this process's own event loop, p99 in milliseconds: as much of what is measured may be its own doing. */
  lag: number;
}

/** Times of one request, epoch milliseconds. */
interface Sent {
  due: number;
  answered?: number;
  requestId?: string;
  claimed?: number;
  readable?: number;
}

/** By the unique index profiles_external_id. A new profile's date is the clock of the statement that claimed its envelope. */
const findProfiles = `
  select profiles.external_id as id, (extract(epoch from profiles.created_at) * 1000)::float8 as claimed
  from profiles
  where profiles.workspace_id = (select workspace_id from api_keys where key_hash = $1)
    and profiles.external_id = any($2::text[])`;

/** By a range of the primary key. */
const findEnvelopes = `
  select ledger.envelope_id::text as id, ledger.requests as traces
  from ledger
  where ledger.envelope_id >= $1::uuid and position($2::bytea in ledger.requests) > 0`;

const { HOST, PORT, KEY, DATABASE_URL, SECONDS } = process.env as Record<string, string>;
const target = { host: HOST!, port: Number(PORT) };
const pool = new pg.Pool({ connectionString: DATABASE_URL!, max: 1 });
const head = postHead(`${HOST}:${PORT}`, '/users/track', KEY!);

const now = () => performance.timeOrigin + performance.now();

/** Ids begin with their time. */
const timeIn = (id: string) => Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16);

/** At a steady rate, whether those before it are answered or not: who waits keeps nobody from being measured. */
async function sendAll(seconds: number): Promise<Sent[]> {
  const idle: HttpConnection[] = [];
  const run = Date.now().toString(36);
  const all: Sent[] = [];
  /** Whose profile is not there yet. */
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
  async function look(): Promise<void> {
    while (isSending || awaited.size > 0) {
      await sleep(LOOK_AGAIN);
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
        if (readable - due > PATIENCE) throw new Error('a profile of the quiet workspace did not come');
    }
  }

  const looking = look();
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

/** When the envelope of each was made. */
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
      pack: summaryOf(all.map(({ requestId }, place) => packed[place]! - timeIn(requestId!))),
      queued: summaryOf(all.map(({ claimed }, place) => claimed! - packed[place]!)),
      applied: summaryOf(all.map(({ claimed, readable }) => readable! - claimed!)),
    },
    lag: loop.percentile(99) / 1e6,
  };
  await pool.end();
  process.stdout.write(JSON.stringify(run));
}

await main();
