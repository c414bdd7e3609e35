import { v7 as uuidv7 } from 'uuid';
import type { AcceptedObject, EnvelopeRequest } from '../../src/jobs/envelope.ts';
import type { Caller } from '../../src/operations/operation.ts';
import { usersTrack } from '../../src/operations/users.track.ts';
import { newId } from '../../src/platform/ids.ts';
import type { Json } from '../../src/profile/json.ts';
import { pack } from '../../src/queue/pack.ts';
import { decodeEnvelope, encodeEnvelope } from '../../src/queue/wire.ts';
import { openPool, type Pool } from '../../src/store/database.ts';
import { endLeftBehind } from '../../test/setup/left-behind.ts';
import { createWorkspace } from '../../test/setup/workspace.ts';
import type { Delivery } from '../../workers/batch/open.ts';
import { applyTogether } from '../../workers/batch/run.ts';
import { startOwnPostgres } from '../chaos/own-postgres.ts';
import { createRandom } from '../load/random.ts';
import { goodObject, trafficKinds, USER_MARK } from '../load/traffic.ts';

/**
 * `npm run batches`: what the road of an object costs web and worker in processor time of their own, without HTTP and
 * queue, in this one process; Postgres's is not counted. It tells in seconds what a change of either brings, which the
 * bench tells of the whole. `-- <rounds>`: how often both are measured; the median counts.
 */

/** Objects of each kind in one request, requests in one envelope, envelopes in one transaction: as under full load. */
const EACH = 25;
const REQUESTS = 13;
const TOGETHER = 2;

const USERS = 10_000;
const WARM_UP = 60;
const MEASURED = 120;

const random = createRandom(7);
const track = usersTrack('service_id');

function bodyOf(): string {
  const objects = (kind: (typeof trafficKinds)[number]) =>
    Array.from({ length: EACH }, () => goodObject(kind, random, Date.now()));
  const body = JSON.stringify(Object.fromEntries(trafficKinds.map((kind) => [kind, objects(kind)])));
  return body.replaceAll(
    USER_MARK,
    () => `load-${String(Math.floor(random() * USERS)).padStart(USER_MARK.length - 'load-'.length, '0')}`,
  );
}

/** What web does with bodies between reading them and adding their envelope to a lane. */
function accept(workspaceId: string, bodies: string[]): string[] {
  const batch = bodies.map((body) => {
    const request: EnvelopeRequest = {
      request_id: newId(),
      workspace_id: workspaceId,
      count: 0,
      accepted_at: new Date().toISOString(),
    };
    const caller: Caller = {
      workspaceId,
      requestId: request.request_id,
      now: Date.now(),
      hasGroup: () => true,
      channelOf: () => 'email',
      isBlocked: () => false,
    };
    const { objects } = track.plan(caller, JSON.parse(body) as Record<string, Json>);
    return { request, objects: objects as AcceptedObject[], bytes: body.length };
  });
  return pack(batch, 1, Number.POSITIVE_INFINITY).map(({ envelope }) =>
    JSON.stringify(encodeEnvelope(envelope)),
  );
}

async function apply(pool: Pool, texts: string[]): Promise<void> {
  for (let first = 0; first < texts.length; first += TOGETHER) {
    const deliveries: Delivery[] = texts
      .slice(first, first + TOGETHER)
      .map((text) => ({ id: uuidv7(), lane: 0, lanes: 1, envelope: decodeEnvelope(JSON.parse(text)) }));
    const result = await applyTogether(pool, deliveries);
    if (result.kind !== 'applied' || result.deadLetters.length > 0) throw new Error('not all were applied');
  }
}

/** Microseconds of processor time of this process for each object. */
async function cost<Result>(envelopes: number, work: () => Promise<Result> | Result) {
  const before = process.cpuUsage();
  const result = await work();
  const { user, system } = process.cpuUsage(before);
  return { result, each: (user + system) / (envelopes * REQUESTS * EACH * trafficKinds.length) };
}

function median(figures: number[]): number {
  return figures.sort((one, other) => one - other)[Math.floor(figures.length / 2)]!;
}

async function main(rounds: number): Promise<void> {
  const { url } = await startOwnPostgres();
  const pool = openPool(url, 3);
  const { id } = await createWorkspace(pool);
  const bodies = Array.from({ length: 400 }, bodyOf);
  const acceptAll = (envelopes: number) =>
    Array.from({ length: envelopes }, (_, envelope) =>
      accept(
        id,
        Array.from(
          { length: REQUESTS },
          (_, place) => bodies[(envelope * REQUESTS + place) % bodies.length]!,
        ),
      ),
    ).flat();
  await apply(pool, acceptAll(WARM_UP));
  const [web, worker]: [number[], number[]] = [[], []];
  for (let round = 0; round < rounds; round++) {
    const accepted = await cost(MEASURED, () => acceptAll(MEASURED));
    const applied = await cost(MEASURED, () => apply(pool, accepted.result));
    web.push(accepted.each);
    worker.push(applied.each);
    process.stdout.write(`web ${accepted.each.toFixed(2)} µs, worker ${applied.each.toFixed(2)} µs\n`);
  }
  process.stdout.write(
    `median: web ${median(web).toFixed(2)} µs, worker ${median(worker).toFixed(2)} µs an object\n`,
  );
  await pool.end();
  await endLeftBehind();
}

await main(Number(process.argv[2] ?? 5));
