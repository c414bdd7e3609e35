import { setTimeout as sleep } from 'node:timers/promises';
import { type Client, createClient } from '../../../test/guarantees/keep-alive-client.ts';
import type { Fleet } from '../../../test/setup/fleet.ts';
import { createWorkspace, type TestWorkspace } from '../../../test/setup/workspace.ts';
import { createRandom, pick } from '../../load/random.ts';
import type { ListOperation } from '../check/list-history.ts';
import { raiseLimitsOf } from './limits.ts';

/** Name of the attribute with the list. */
const LIST = 'log';

/** Maximum values of a list. An array attribute keeps only its newest 500 elements. */
const MAX_VALUES = 450;

export interface ListsOptions {
  seed: number;
  clients: number;
  users: number;
  /** Milliseconds between two operations of a client. */
  pause: number;
}

/**
 * Starts clients that concurrently add values to lists of the same users, remove some of them, and read the
 * lists.
 */
export async function startLists(fleet: Fleet, { seed, clients, users, pause }: ListsOptions) {
  const workspace: TestWorkspace = await createWorkspace(fleet.pool, 'lists');
  await raiseLimitsOf(fleet.pool, workspace.id);
  const random = createRandom(seed);
  const history: ListOperation[] = [];
  const added = new Map<string, number>();
  /** Values that may be removed, by user. */
  const removable = new Map<string, string[]>();
  let stopping = false;

  const userAt = (index: number) => `list-${index}`;

  async function change(client: Client, number: number, kind: 'add' | 'remove', user: string, value: string) {
    const invoked = performance.now();
    const attributes = [{ external_id: user, [LIST]: { [kind]: [value] } }];
    const { status, neverSent } = await client.post(pick(random, fleet.edges).port, '/users/track', {
      attributes,
    });
    if (neverSent) return;
    const common = { client: number, user, invoked, kind, value };
    if (status === undefined || status >= 500) history.push({ ...common, outcome: 'unknown' });
    else {
      history.push({ ...common, completed: performance.now(), outcome: status < 300 ? 'ok' : 'failed' });
      if (status < 300 && kind === 'add') removable.set(user, [...(removable.get(user) ?? []), value]);
    }
  }

  async function read(client: Client, number: number, user: string) {
    const invoked = performance.now();
    const body = { external_ids: [user], fields_to_export: ['external_id', 'custom_attributes'] };
    const answer = await client.post(pick(random, fleet.edges).port, '/users/export/ids', body);
    if (answer.status !== 200 && answer.status !== 201) return;
    const results = (answer.body as unknown as { users?: { custom_attributes?: Record<string, string[]> }[] })
      .users;
    const values = results?.[0]?.custom_attributes?.[LIST] ?? [];
    history.push({ kind: 'read', client: number, user, invoked, completed: performance.now(), values });
  }

  async function run(number: number): Promise<void> {
    const client = createClient(workspace.key);
    for (let sequence = 0; !stopping; sequence++) {
      await sleep(pause);
      if (fleet.edges.length === 0) continue;
      const user = userAt(Math.floor(random() * users));
      const chance = random();
      const count = added.get(user) ?? 0;
      if (chance < 0.6 && count < MAX_VALUES) {
        added.set(user, count + 1);
        await change(client, number, 'add', user, `${number}-${sequence}`);
      } else if (chance < 0.7 && (removable.get(user)?.length ?? 0) > 0) {
        // Each value is removed only once.
        const values = removable.get(user)!;
        const [value] = values.splice(Math.floor(random() * values.length), 1);
        await change(client, number, 'remove', user, value!);
      } else await read(client, number, user);
    }
    client.close();
  }

  const running = Promise.all(Array.from({ length: clients }, (_, number) => run(number)));
  return {
    history: history as readonly ListOperation[],
    async stop() {
      stopping = true;
      await running;
    },
    /** Returns the list of each user in Postgres. */
    async last(): Promise<Map<string, string[]>> {
      const { rows } = await fleet.pool.query<{ user: string; values: string[] }>(
        `select external_id as user, coalesce(custom_attributes -> '${LIST}', '[]') as values
         from profiles where workspace_id = $1 and external_id is not null`,
        [workspace.id],
      );
      return new Map(rows.map(({ user, values }) => [user, values]));
    },
  };
}
