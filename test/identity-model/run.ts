import { setTimeout as sleep } from 'node:timers/promises';
import { createRandom, pick } from '../../tools/load/random.ts';
import { createClient } from '../guarantees/keep-alive-client.ts';
import { IdentityModel } from '../model/identity-model.ts';
import type { Fleet } from '../setup/fleet.ts';
import { waitUntil } from '../setup/wait-until.ts';
import { generateRequest, type Request } from './generate.ts';
import { fewNames, type Names, oneNameEach } from './names.ts';

export interface RunOptions {
  /** Elements of all requests. */
  operations: number;
  seed: number;
  clients: number;
  /** Circles of users; no operation names users of two circles. */
  circles: number;
  /** Workers killed during the run, each replaced. */
  kills: number;
  lanes: number;
  progress?(operations: number): void;
}

export interface Run {
  model: IdentityModel;
  operations: number;
  /** Descriptions of answers that differ from the model's. */
  surprises: string[];
}

/**
 * Sends random requests by several clients through all web processes of a fleet, and applies them to the
 * model in the order of
 * acceptance. The order is known, because two requests about one circle of users are never in progress at the
 * same time: the
 * next one is sent when the previous one has been accepted, without waiting until that is applied.
 */
export async function runModel(fleet: Fleet, options: RunOptions): Promise<Run> {
  const { seed, circles, lanes } = options;
  const random = createRandom(seed);
  const run: Run = { model: new IdentityModel(), operations: 0, surprises: [] };
  const namesOf: Names[] = Array.from({ length: circles }, (_, circle) =>
    lanes === 1 ? fewNames(random, circle) : oneNameEach(random, circle, run.model),
  );
  const free = Array.from({ length: circles }, (_, circle) => circle);
  let tick = 0;
  /** Times of a run differ, and are in the past. */
  const time = () => new Date(Date.UTC(2026, 0, 1) + tick++ * 10).toISOString();

  const client = async () => {
    const connection = createClient(fleet.workspace.key);
    while (run.operations < options.operations) {
      const circle = free.splice(Math.floor(random() * free.length), 1)[0]!;
      const request = generateRequest(random, namesOf[circle]!, time);
      run.operations += request.elements.length;
      options.progress?.(run.operations);
      const verdicts = request.elements.map(({ kind, element }) => run.model.apply(kind, element));
      const { port } = pick(random, fleet.edges);
      const { status, body } = await connection.post(port, request.path, request.body);
      const surprise = surpriseOf(request, verdicts, status, body);
      if (surprise) run.surprises.push(surprise);
      free.push(circle);
    }
    connection.close();
  };

  const clients = Promise.all(Array.from({ length: options.clients }, client));
  for (let kill = 1; kill <= options.kills; kill++) {
    await waitUntil(() => run.operations >= (options.operations * kill) / (options.kills + 1), {
      what: 'operations between two kills',
      deadline: 3_600_000,
    });
    await fleet.end(pick(random, fleet.workers));
    await fleet.startWorker();
  }
  await clients;
  return run;
}

/** Checks the outcome of a rename or a remove; every other request is accepted completely. */
function surpriseOf(
  request: Request,
  verdicts: (string | undefined)[],
  status: number | undefined,
  body: unknown,
): string | undefined {
  const outcome = body as { rename_errors?: unknown[]; removal_errors?: unknown[]; pending?: boolean };
  const errors = (outcome?.rename_errors ?? outcome?.removal_errors)?.length;
  const refused = verdicts.filter((verdict) => verdict !== undefined).length;
  const fits =
    status !== undefined && status < 300 && (errors === undefined || outcome.pending || errors === refused);
  return fits ? undefined : JSON.stringify({ request, verdicts, status, body });
}

/** Resolves when all accepted operations have been applied, and all tombstones are settled. */
export async function waitUntilApplied({ pool }: Fleet, operations: number, deadline: number): Promise<void> {
  await waitUntil(
    async () => {
      const { rows } = await pool.query(
        `select
          (select coalesce(sum(objects + dead_letters), 0)::integer from lane_totals) as applied,
          (select count(*)::integer from removed_profiles) as removed`,
      );
      if (rows[0].applied < operations) await sleep(200);
      return rows[0].applied === operations && rows[0].removed === 0;
    },
    { what: `${operations} operations to be applied`, deadline },
  );
}
