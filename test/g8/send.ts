import { Agent, request } from 'node:http';
import type { Operation } from '../../src/operations/operation.ts';
import { pick } from '../../tools/load/random.ts';
import type { createAccess } from '../setup/access.ts';
import { send } from '../setup/api.ts';
import type { Grown } from './grown.ts';
import type { Shape } from './shape.ts';
import { shapesOf } from './shapes.ts';

/** Where a connection ended without an answer. */
const BROKEN = 0;

/** Sends the worst requests that are known, from the workspace whose users have grown. */
export async function createSender({
  port,
  grown,
  random,
  access,
}: {
  port: number;
  grown: Grown;
  random(): number;
  access: ReturnType<typeof createAccess>;
}) {
  const agent = new Agent({ keepAlive: true });

  /** The shapes of an operation; of one that takes nothing, its example. */
  function shapes({ id }: Operation, bytes: number): Shape[] {
    const known = shapesOf({ grown, bytes, random })[id] ?? [{ of: 'the example' }];
    // Another one first each time.
    const first = Math.floor(random() * known.length);
    return [...known.slice(first), ...known.slice(0, first)];
  }

  /** @returns the status */
  async function fire(operation: Operation, shape: Shape): Promise<number> {
    const { key, headers } = await access.admit(operation, grown.workspace);
    const { body } = shape;
    let path = operation.path;
    for (const [name, value] of Object.entries({ ...operation.example.params, ...shape.params }))
      path = path.replace(`:${name}`, encodeURIComponent(value));
    return new Promise((resolve, reject) => {
      const asked = request({
        port,
        agent,
        method: operation.method,
        path: shape.query ? `${path}?${shape.query}` : path,
        headers: {
          authorization: `Bearer ${key}`,
          ...headers,
          ...shape.headers,
          ...(body !== undefined && {
            'content-type': 'application/json',
            'content-length': Buffer.byteLength(body),
          }),
        },
      });
      asked.on('response', (response) => {
        response.resume();
        response.on('end', () => resolve(response.statusCode!));
        response.on('error', reject);
      });
      asked.on('error', reject);
      asked.end(body);
    });
  }

  return {
    shapesOf: shapes,
    fire,
    /** The documented example of an operation. */
    async example(operation: Operation): Promise<void> {
      const example = await access.example(operation, grown.workspace);
      await send(port, { ...example, ...(await access.admit(operation, grown.workspace)) });
    },
    /** Keeps so many connections busy for so long. @returns how many answers had which status, 0: none */
    async flood(
      operations: Operation[],
      { bytes, connections, milliseconds }: { bytes: number; connections: number; milliseconds: number },
    ): Promise<Map<number, number>> {
      const statuses = new Map<number, number>();
      const end = performance.now() + milliseconds;
      const connection = async () => {
        do {
          const operation = pick(random, operations);
          const [shape] = shapes(operation, bytes);
          // What breaks in a flood is its own affair: measured is whom it holds up.
          const status = await fire(operation, shape!).catch(() => BROKEN);
          statuses.set(status, (statuses.get(status) ?? 0) + 1);
        } while (performance.now() < end);
      };
      await Promise.all(Array.from({ length: connections }, connection));
      return statuses;
    },
  };
}

export type Sender = Awaited<ReturnType<typeof createSender>>;
