import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import { waitUntil } from '../setup/fixtures.ts';
import { describeFleet } from '../setup/fleet-state.ts';
import { countProcessed, type Fleet, watchWorkers } from './fleet.ts';
import { createClient } from './keep-alive-client.ts';

/**
 * Steps per user, each of which adds its number to the array attribute `log`: far below the limit of 500
 * elements.
 */
const MAX_STEPS = 200;

/** Objects that may wait to be applied; above that, the clients pause. */
const MAX_UNAPPLIED = 300;

/** A user with the numbers of its acknowledged steps, in order. */
interface Mover {
  name: string;
  steps: number[];
  /** Tags of the events. */
  tags: string[];
}

/**
 * Starts clients whose users change their address: an object by external id sets a new email, and the next
 * objects use that
 * email at once. Only in this order do they reach the user: too early, they would create another one.
 */
export function startMoves(fleet: Fleet, { clients = 10 } = {}) {
  const movers: Mover[] = [];
  const failures: unknown[] = [];
  let acknowledged = 0;
  let accepted = 0;
  let stopping = false;
  const workers = watchWorkers(fleet);

  async function run(number: number): Promise<void> {
    const client = createClient(fleet.workspace.key);
    let turn = number;
    const post = async (body: Record<string, unknown[]>) => {
      while (accepted - workers.processed() > MAX_UNAPPLIED && !stopping) await sleep(20);
      const edge = fleet.edges[turn++ % fleet.edges.length]!;
      const answer = await client.post(edge.port, '/users/track', body);
      if (answer.status !== 201 || answer.body?.errors) failures.push(answer);
      accepted += Object.values(body).flat().length;
      acknowledged++;
    };
    for (let born = 0; !stopping; born++) {
      const mover: Mover = { name: `mover-${number}-${born}`, steps: [], tags: [] };
      movers.push(mover);
      for (let move = 0; mover.steps.length < MAX_STEPS && !stopping; move++) {
        const email = `${mover.name}-${move}@example.com`;
        const step = () => {
          const next = mover.steps.length + 1;
          mover.steps.push(next);
          return { log: { add: [next] } };
        };
        const tag = `${mover.name}/${move}`;
        const time = new Date().toISOString();
        await post({ attributes: [{ external_id: mover.name, email, ...step() }] });
        await post({
          attributes: [{ email, ...step() }],
          events: [{ email, name: 'moved', time, properties: { tag } }],
        });
        mover.tags.push(tag);
        // Ordered after the objects for the email, because this object contains the email too.
        await post({ attributes: [{ external_id: mover.name, email, ...step() }] });
      }
    }
    client.close();
  }

  const running = Promise.all([
    workers.watching,
    ...Array.from({ length: clients }, (_, number) => run(number)),
  ]);
  return {
    movers,
    failures,
    /** Resolves when so many more requests have been acknowledged. */
    async more(requests: number, deadline = 60_000) {
      const goal = acknowledged + requests;
      await waitUntil(() => acknowledged >= goal, {
        what: `${requests} more acknowledged requests`,
        deadline,
        explain: () => describeFleet(fleet),
      });
    },
    /** Lets every client finish its request, and waits until all accepted objects are applied. */
    async cleanUp(deadline = 60_000) {
      stopping = true;
      workers.leave();
      await running;
      await waitUntil(async () => (await countProcessed(fleet)) >= accepted, {
        what: `${accepted} objects to be applied`,
        deadline,
        explain: () => describeFleet(fleet),
      });
    },
  };
}

export type Moves = ReturnType<typeof startMoves>;

/** Expects one profile per user with every step and event, each once, in the order of acknowledgement. */
export async function expectEveryoneFound({ pool, workspace }: Fleet, { movers }: Moves): Promise<void> {
  const { rows } = await pool.query<{ name: string | null; log: number[]; tags: string[] }>(
    `select profiles.external_id as name, coalesce(profiles.custom_attributes -> 'log', '[]') as log,
            array(
              select events.properties ->> 'tag' from events
              where events.workspace_id = $1 and events.profile_id = profiles.id) as tags
       from profiles
      where profiles.workspace_id = $1`,
    [workspace.id],
  );
  const strangers = rows.filter(({ name }) => name === null);
  expect(strangers, 'profiles made by what came too early').toEqual([]);
  const collected = new Map(rows.map(({ name, ...rest }) => [name, rest]));
  const wrong = movers.flatMap(({ name, steps, tags }) => {
    const { log, tags: events } = collected.get(name) ?? { log: [], tags: [] };
    const position = steps.findIndex((step, index) => log[index] !== step);
    const late = position < 0 ? [] : [`${name}: ${log.slice(position)} instead of ${steps.slice(position)}`];
    if (log.length > steps.length) late.push(`${name}: ${log.length} steps instead of ${steps.length}`);
    return events.sort().join() === [...tags].sort().join() ? late : [...late, `${name}: ${events}`];
  });
  expect(wrong).toEqual([]);
}
