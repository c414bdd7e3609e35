import { setTimeout as sleep } from 'node:timers/promises';
import { hashApiKey } from '../../src/store/credentials.ts';
import { spawnOnLeash } from '../../test/setup/leash.ts';
import { postHead, toMessage } from '../load/bodies.ts';
import { HttpConnection } from '../load/http-connection.ts';
import { createLatencies, type LatencySummary } from '../load/latencies.ts';
import { runLoad } from '../load/run-load.ts';
import type { Figure } from './figure.ts';
import { CONNECTIONS_OF_75, type Size } from './size.ts';
import type { Tenants } from './tenants.ts';

/** Requests of the quiet workspace a second, each of one new profile. */
const RATE = 40;

/** Milliseconds between two looks which profiles are there: one statement for all, since looking costs the machine as well. */
const LOOK_AGAIN = 4;

/** Milliseconds after which nobody looks any more. */
const PATIENCE = 60_000;

/** Seconds of the flood before anything is measured: by then more waits than is applied in a second. */
const HEAD_START = 2;

interface Quiet {
  /** From the time at which a request was due until its answer, and until its profile could be read. */
  accept: LatencySummary;
  readable: LatencySummary;
}

/** Processes that a flood keeps busy: web, worker, two sessions of Postgres. */
const SPINNING = 4;

/** What a machine gives whose cores are as busy with something else: no fairness of ours can do better. */
async function whileBusy<T>(work: () => Promise<T>): Promise<T> {
  const spinning = Array.from({ length: SPINNING }, () =>
    spawnOnLeash([process.execPath, '-e', 'for (;;);'], { stdout: 'ignore' }),
  );
  try {
    return await work();
  } finally {
    for (const { child } of spinning) child.kill('SIGKILL');
    await Promise.all(spinning.map(({ exit }) => exit));
  }
}

/** A quiet workspace alone, beside busy cores, and then while another one sends as fast as it is answered. */
export async function besideFlood(tenants: Tenants, size: Size): Promise<Figure> {
  const quietKey = tenants.keys[1]!;
  const alone = await sendQuietly(tenants, quietKey, size.seconds);
  const busy = await whileBusy(() => sendQuietly(tenants, quietKey, size.seconds));
  const flood = runLoad({
    ...{ target: tenants.target, key: tenants.key, users: size.usersOfTenant * size.tenants },
    ...{ objects: 75, badShare: 0, connections: CONNECTIONS_OF_75, rate: 0, probe: false },
    ...{ seconds: size.seconds + HEAD_START, maxRequests: Number.POSITIVE_INFINITY, drainSeconds: 180 },
    observer: tenants.observer,
  });
  await sleep(HEAD_START * 1000);
  const beside = await sendQuietly(tenants, quietKey, size.seconds);
  const { tally, seconds, applied } = await flood;
  return {
    value: beside.readable.p99 / alone.readable.p99,
    unit: 'x',
    detail: {
      accept_ratio: beside.accept.p99 / alone.accept.p99,
      flood_accepted_per_second: tally.accepted / seconds,
      flood_applied_per_second: applied!.objects / applied!.seconds,
      readable_over_busy: beside.readable.p99 / busy.readable.p99,
      accept_over_busy: beside.accept.p99 / busy.accept.p99,
      ...described('alone', alone),
      ...described('busy', busy),
      ...described('beside', beside),
    },
  };
}

function described(name: string, { accept, readable }: Quiet): Record<string, number> {
  return {
    [`${name}_requests`]: readable.count,
    [`${name}_accept_p50_ms`]: accept.p50,
    [`${name}_accept_p99_ms`]: accept.p99,
    [`${name}_readable_p50_ms`]: readable.p50,
    [`${name}_readable_p99_ms`]: readable.p99,
  };
}

/** By the unique index profiles_external_id. */
const findProfiles = `
  select profiles.external_id as id
  from profiles
  where profiles.workspace_id = (select workspace_id from api_keys where key_hash = $1)
    and profiles.external_id = any($2::text[])`;

/** At a steady rate, whether those before it are answered or not: who waits keeps nobody from being measured. */
async function sendQuietly({ target, pool }: Tenants, key: string, seconds: number): Promise<Quiet> {
  const [accept, readable] = [createLatencies(), createLatencies()];
  const head = postHead(`${target.host}:${target.port}`, '/users/track', key);
  const idle: HttpConnection[] = [];
  const run = Date.now().toString(36);
  /** When each was due whose profile is not there yet. */
  const awaited = new Map<string, number>();

  async function sendOne(number: number, due: number): Promise<void> {
    const externalId = `quiet-${run}-${number}`;
    const connection = idle.pop() ?? new HttpConnection(target);
    const body = JSON.stringify({ attributes: [{ external_id: externalId, number }] });
    const answer = await connection.send(toMessage(head, body).bytes);
    idle.push(connection);
    if (answer.status !== 201) throw new Error(`the quiet workspace was refused: ${answer.status}`);
    accept.add(performance.now() - due);
    awaited.set(externalId, due);
  }

  let isSending = true;
  async function look(): Promise<void> {
    while (isSending || awaited.size > 0) {
      await sleep(LOOK_AGAIN);
      if (awaited.size === 0) continue;
      const { rows } = await pool.query<{ id: string }>({
        name: 'find-quiet',
        text: findProfiles,
        values: [hashApiKey(key), [...awaited.keys()]],
      });
      const now = performance.now();
      for (const { id } of rows) {
        readable.add(now - awaited.get(id)!);
        awaited.delete(id);
      }
      for (const due of awaited.values())
        if (now - due > PATIENCE) throw new Error('a profile of the quiet workspace did not come');
    }
  }

  const looking = look();
  const sending: Promise<void>[] = [];
  const start = performance.now();
  for (let number = 0; number < RATE * seconds; number++) {
    const due = start + (number * 1000) / RATE;
    await sleep(Math.max(0, due - performance.now()));
    sending.push(sendOne(number, due));
  }
  await Promise.all(sending);
  isSending = false;
  await looking;
  for (const connection of idle) connection.close();
  return { accept: accept.summary()!, readable: readable.summary()! };
}
