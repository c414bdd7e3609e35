import { Command } from 'commander';
import { v7 as uuidv7 } from 'uuid';
import { readConfig } from '../../src/platform/config.ts';
import { packageVersion } from '../../src/platform/files.ts';
import { newId } from '../../src/platform/ids.ts';
import { startTracing, stopTracing } from '../../src/platform/tracing.ts';
import { decodeEnvelope } from '../../src/queue/wire.ts';
import { everyStatementByIndex, openPool, type Pool } from '../../src/store/database.ts';
import { createDestination } from '../../src/store/stream-destinations.ts';
import { runCommand } from '../../test/setup/run-command.ts';
import { createWorkspace } from '../../test/setup/workspace.ts';
import type { Delivery } from '../../workers/batch/open.ts';
import { runBatch } from '../../workers/batch/run-batch.ts';
import { trafficKinds } from '../load/traffic.ts';
import { accept, bodyOf, EACH } from './batches-of-web.ts';
import { readCpu } from './cpu.ts';
import { openStore } from './postgres-servers.ts';

/**
 * `npm run batches` measures the processor time that web and worker need for an object, without HTTP and
 * queue and in this one process, and the time that Postgres needs. It shows the effect of a change in
 * seconds, while the bench measures the whole system.
 *
 * With OTEL_EXPORTER_OTLP_ENDPOINT and a collector at that address, each round has three turns: without
 * traces, with one request in a hundred traced, and with all requests traced. The cost of spans includes
 * encoding and sending them. With `--streamed` each round has an additional turn in a workspace with streams.
 * With `--citus` it uses the Citus of CITUS_URL, and the time of Postgres is the sum over coordinator and
 * nodes.
 */

/** Requests in one envelope, and envelopes in one transaction, as under full load. */
const REQUESTS = 13;
const ENVELOPES_PER_TRANSACTION = 2;

const WARM_UP = 60;
const MEASURED = 120;

async function apply(pool: Pool, texts: string[]): Promise<void> {
  for (let first = 0; first < texts.length; first += ENVELOPES_PER_TRANSACTION) {
    const deliveries: Delivery[] = texts
      .slice(first, first + ENVELOPES_PER_TRANSACTION)
      .map((text) => ({ id: uuidv7(), lane: 0, lanes: 1, envelope: decodeEnvelope(JSON.parse(text)) }));
    const result = await runBatch(pool, deliveries);
    if (result.kind !== 'applied' || result.deadLetters.length > 0) throw new Error('not all were applied');
  }
}

/**
 * Measures microseconds of processor time per object, of this process and of each Postgres server, and
 * objects per second. The times of Postgres are counted in ticks of 10 ms.
 */
async function cost<Result>(envelopes: number, servers: Servers, work: () => Promise<Result> | Result) {
  const objects = envelopes * REQUESTS * EACH * trafficKinds.length;
  const postgresSeconds = () => {
    const used = readCpu(servers);
    return Object.keys(servers).map((name) => used[name] ?? Number.NaN);
  };
  const [before, postgresBefore, from] = [process.cpuUsage(), postgresSeconds(), performance.now()];
  const result = await work();
  const { user, system } = process.cpuUsage(before);
  const postgres = postgresSeconds().map((used, index) => ((used - postgresBefore[index]!) * 1e6) / objects);
  const rate = (objects / (performance.now() - from)) * 1000;
  return { result, each: (user + system) / objects, postgres, rate };
}

function median(figures: number[]): number {
  return [...figures].sort((one, other) => one - other)[Math.floor(figures.length / 2)]!;
}

/** Shares of requests that are traced, as in OTEL_TRACES_SAMPLER_ARG; `off` does not load the SDK. */
const TRACES = process.env.OTEL_EXPORTER_OTLP_ENDPOINT ? ['off', '0.01', '1'] : ['off'];

/** A turn of each round. */
interface Arm {
  traces: string;
  /**
   * Whether the workspace has two destinations of streams. No process delivers to them, so only writing the
   * log is measured.
   */
  streamed: boolean;
}

const nameOf = ({ traces, streamed }: Arm) => (streamed ? 'streamed' : `traces ${traces}`);

/** Runs one half of the path as a separate process would: its spans are sent before it ends. */
async function traced<Result>(arm: string, work: () => Promise<Result>): Promise<Result> {
  const sampler = { OTEL_TRACES_SAMPLER: 'parentbased_traceidratio', OTEL_TRACES_SAMPLER_ARG: arm };
  const config = readConfig({ ...process.env, ...(arm !== 'off' && sampler) });
  if (arm !== 'off') await startTracing(config, { name: 'batches', id: newId(), version: packageVersion });
  const result = await work();
  await stopTracing(config);
  return result;
}

async function main(): Promise<void> {
  const {
    rounds,
    streamed,
    citus,
    postgres: programs,
  } = new Command('npm run batches --')
    .description(
      'Measure the processor time that an object takes web, worker and Postgres, without HTTP and queue.',
    )
    .option('--rounds <number>', 'how often; the median counts', Number, 5)
    .option('--streamed', 'also in a workspace whose objects are written to the log of streams', false)
    .option('--postgres <folder>', "the Postgres whose programs lie there, not npm's")
    .option('--citus', 'a database on the Citus of CITUS_URL, which is on this machine', false)
    .parse(process.argv)
    .opts<{ rounds: number; streamed: boolean; citus: boolean; postgres?: string }>();
  const { url, servers, stop } = await openStore({ citus, programs });
  try {
    const arms: Arm[] = TRACES.map((traces) => ({ traces, streamed: false }));
    if (streamed) arms.push({ traces: 'off', streamed });
    await measure(rounds, { arms, url, servers });
  } finally {
    await stop();
  }
}

/** Creates a workspace, with destinations if the turn requires them. */
async function workspaceOf(pool: Pool, arm: Arm): Promise<string> {
  const { id: workspaceId } = await createWorkspace(pool, nameOf(arm));
  for (const name of arm.streamed ? ['one', 'other'] : []) {
    const made = { workspaceId, id: newId(), name, kind: 'webhook', settings: {}, secret: null };
    await createDestination(pool, made);
  }
  return workspaceId;
}

/** Process ids of the Postgres servers by name. */
type Servers = Record<string, number>;

interface Measured {
  arms: Arm[];
  url: string;
  servers: Servers;
}

async function measure(rounds: number, { arms, ...postgres }: Measured): Promise<void> {
  const setup = openPool(postgres.url, 1);
  const workspaces = new Map<Arm, string>();
  for (const arm of arms) workspaces.set(arm, await workspaceOf(setup, arm));
  await setup.end();
  const bodies = Array.from({ length: 400 }, bodyOf);
  const acceptAll = async (arm: Arm, envelopes: number) => {
    const id = workspaces.get(arm)!;
    const texts: string[] = [];
    for (let first = 0; first < envelopes * REQUESTS; first += REQUESTS) {
      const chosen = Array.from({ length: REQUESTS }, (_, next) => bodies[(first + next) % bodies.length]!);
      texts.push(...accept(id, chosen));
      await new Promise(setImmediate);
    }
    return texts;
  };
  const applyAll = async (texts: string[]) => {
    // Connections check whether tracing is on when they are opened.
    const pool = openPool(postgres.url, 3, { session: everyStatementByIndex });
    await apply(pool, texts);
    await pool.end();
  };
  for (const arm of arms) await applyAll(await acceptAll(arm, WARM_UP));
  const figures = arms.map((arm) => ({
    arm,
    web: [] as number[],
    worker: [] as number[],
    postgres: [] as number[][],
    rate: [] as number[],
  }));
  for (let round = 0; round < rounds; round++) {
    for (const { arm, ...parts } of figures) {
      const { traces } = arm;
      const accepted = await cost(MEASURED, postgres.servers, () =>
        traced(traces, () => acceptAll(arm, MEASURED)),
      );
      const applied = await cost(MEASURED, postgres.servers, () =>
        traced(traces, () => applyAll(accepted.result)),
      );
      parts.web.push(accepted.each);
      parts.worker.push(applied.each);
      parts.postgres.push(applied.postgres);
      parts.rate.push(applied.rate);
      process.stdout.write(
        `${nameOf(arm)}: web ${accepted.each.toFixed(2)}, worker ${applied.each.toFixed(2)}, Postgres ${describe(applied.postgres)} µs, applied ${applied.rate.toFixed(0)} a second\n`,
      );
    }
  }
  const [off] = figures;
  for (const { arm, web, worker, postgres: ofPostgres, rate } of figures) {
    const percentMore = (of: number[], base: number[]) =>
      of.map((each, round) => (each / base[round]! - 1) * 100);
    const more = `, more than off in the same round: web ${spread(percentMore(web, off!.web))}, worker ${spread(percentMore(worker, off!.worker))}`;
    process.stdout.write(
      `median: ${nameOf(arm)}: web ${median(web).toFixed(2)}, worker ${median(worker).toFixed(2)}, Postgres ${describe(medians(ofPostgres))} µs an object, applied ${median(rate).toFixed(0)} a second${arm === off!.arm ? '' : more}\n`,
    );
  }
}

/** Returns the median for each server. */
function medians(rounds: number[][]): number[] {
  return rounds[0]!.map((_, server) => median(rounds.map((round) => round[server]!)));
}

/** Formats the sum, and for a Citus also the time of the coordinator and of each node. */
function describe(servers: number[]): string {
  const sum = servers.reduce((total, one) => total + one, 0).toFixed(2);
  return servers.length === 1 ? sum : `${sum} (${servers.map((one) => one.toFixed(2)).join(' + ')})`;
}

/** Formats the median and the interquartile range. */
function spread(percent: number[]): string {
  const sorted = [...percent].sort((one, other) => one - other);
  const at = (share: number) => `${sorted[Math.floor((sorted.length - 1) * share)]!.toFixed(1)} %`;
  return `${at(0.5)} (${at(0.25)} to ${at(0.75)})`;
}

await runCommand(main);
