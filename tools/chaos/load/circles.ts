import { setTimeout as sleep } from 'node:timers/promises';
import { type Client, createClient } from '../../../test/guarantees/keep-alive-client.ts';
import { generateRequest, type Request } from '../../../test/identity-model/generate.ts';
import { fewNames, type Names, oneNameEach } from '../../../test/identity-model/names.ts';
import { IdentityModel } from '../../../test/model/identity-model.ts';
import type { Fleet } from '../../../test/setup/fleet.ts';
import { createWorkspace, type TestWorkspace } from '../../../test/setup/workspace.ts';
import { createRandom, pick } from '../../load/random.ts';
import { raiseLimitsOf } from './limits.ts';

/** A few users that operations of other circles never refer to. */
export interface Circle {
  number: number;
  /** Model that has applied all accepted objects in order. */
  model: IdentityModel;
  /** The last request if its result is unknown. No further request was sent for the circle. */
  unknown?: Request;
}

export interface CirclesOptions {
  clients?: number;
  /** Number of active circles. */
  circles?: number;
  seed: number;
  /** Milliseconds between two requests of a client. */
  pause?: number;
}

/**
 * Sends random requests of all kinds, including merges, deletes and renames, and applies accepted ones to a
 * sequential model. Requests for one circle are never concurrent, so that their order is known. If a request
 * gets no response, its circle is left unchanged and replaced by a new one.
 */
export async function startCircles(fleet: Fleet, options: CirclesOptions) {
  const { clients = 2, circles = 12, seed, pause = 0 } = options;
  const workspace = await createWorkspace(fleet.pool, 'circles');
  await raiseLimitsOf(fleet.pool, workspace.id);
  const random = createRandom(seed);
  const all: Circle[] = [];
  const names: Names[] = [];
  const surprises: string[] = [];
  let acknowledged = 0;
  let tick = 0;
  let stopping = false;
  /** Returns different times in the past. */
  const time = () => new Date(Date.UTC(2026, 0, 1) + tick++ * 10).toISOString();

  function begin(): number {
    const circle: Circle = { number: all.length, model: new IdentityModel() };
    all.push(circle);
    names.push(
      fleet.env.LANES === '1'
        ? fewNames(random, circle.number)
        : oneNameEach(random, circle.number, circle.model),
    );
    return circle.number;
  }
  const free = Array.from({ length: circles }, begin);

  async function run(): Promise<void> {
    const client = createClient(workspace.key);
    while (!stopping) {
      const number = free.splice(Math.floor(random() * free.length), 1)[0]!;
      const request = generateRequest(random, names[number]!, time);
      const circle = all[number]!;
      const response = await deliver(client, circle, request);
      free.push(response ? number : begin());
      await sleep(response ? pause : 50);
    }
    client.close();
  }

  /** @returns whether the result of the request is known */
  async function deliver(client: Client, circle: Circle, request: Request): Promise<boolean> {
    while (!stopping) {
      const edges = fleet.edges;
      if (edges.length === 0) {
        await sleep(20);
        continue;
      }
      const { status, body, neverSent } = await client.post(
        pick(random, edges).port,
        request.path,
        request.body,
      );
      if (neverSent) {
        await sleep(20);
        continue;
      }
      if (status === undefined || status >= 500) {
        circle.unknown = request;
        return false;
      }
      const verdicts = request.elements.map(({ kind, element }) => circle.model.apply(kind, element));
      acknowledged += request.elements.length;
      const surprise = surpriseOf(request, verdicts, status, body);
      if (surprise) surprises.push(surprise);
      return true;
    }
    return true;
  }

  const running = Promise.all(Array.from({ length: clients }, run));
  return {
    workspace,
    circles: all,
    surprises,
    acknowledged: () => acknowledged,
    async stop() {
      stopping = true;
      await running;
    },
  };
}

export type Circles = Awaited<ReturnType<typeof startCircles>> & { workspace: TestWorkspace };

/**
 * Checks the response. Renames and removals report whether they took effect, unless it cannot be known yet;
 * every other request is accepted as a whole.
 */
function surpriseOf(
  request: Request,
  verdicts: (string | undefined)[],
  status: number,
  body: unknown,
): string | undefined {
  const response = body as { rename_errors?: unknown[]; removal_errors?: unknown[]; pending?: boolean };
  const errors = (response?.rename_errors ?? response?.removal_errors)?.length;
  const refused = verdicts.filter((verdict) => verdict !== undefined).length;
  const fits = status < 300 && (errors === undefined || response.pending || errors === refused);
  return fits ? undefined : JSON.stringify({ request, verdicts, status, body });
}
