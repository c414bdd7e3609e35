import type { Environment } from '../environment.ts';
import type { BenchRow, Figure } from '../figure.ts';
import type { Fleets } from '../fleets.ts';
import { measurePipeline } from '../pipeline.ts';
import { besideFlood } from '../quiet-neighbour.ts';
import { CONNECTIONS_OF_1, CONNECTIONS_OF_75, type Size } from '../size.ts';

/**
 * Measures many workspaces that send evenly, relative to one workspace with the same traffic and number of
 * users, and a quiet workspace alongside a noisy one.
 */
export function tenantRows(fleets: Fleets, environment: Environment, size: Size): BenchRow[] {
  async function measure(objects: number, workspaces: number): Promise<Figure> {
    const tenants = await fleets.tenants();
    return measurePipeline(tenants, environment, {
      objects,
      keys: tenants.keys.slice(0, workspaces),
      users: workspaces === 1 ? size.tenants * size.usersOfTenant : size.usersOfTenant,
      spread: 'evenly',
      seconds: size.seconds,
      connections: objects === 1 ? CONNECTIONS_OF_1 : CONNECTIONS_OF_75,
      maxRequests: Number.POSITIVE_INFINITY,
    });
  }
  const row = (objects: number, workspaces: number, name: string): BenchRow => ({
    name,
    what: `${workspaces} workspace${workspaces === 1 ? '' : 's in turn'}, ${objects} per request: objects/s applied`,
    measure: () => measure(objects, workspaces),
  });
  return [
    row(75, 1, 'tenants-1-75'),
    row(75, size.tenants, 'tenants-1000-75'),
    row(1, 1, 'tenants-1-1'),
    row(1, size.tenants, 'tenants-1000-1'),
    {
      name: 'noisy-neighbour',
      what: 'a quiet workspace alongside a noisy one: p99 until it can be read, over the same alone',
      measure: async () => besideFlood(await fleets.tenants(), size),
    },
    {
      name: 'noisy-other-shard',
      what: 'the same, with the quiet workspace in another shard than the noisy one',
      measure: async () => besideFlood(await fleets.twoShards(1), size),
    },
    {
      name: 'noisy-other-worker',
      what: 'the same, with a worker for each of the shards',
      measure: async () => besideFlood(await fleets.twoShards(2), size),
    },
  ];
}
