import { Agent, request } from 'node:http';
import type { Operation } from '../../src/operations/operation.ts';
import { pick } from '../../tools/load/random.ts';
import type { createAccess } from '../setup/access.ts';
import { send } from '../setup/api.ts';
import type { Grown } from './grown.ts';
import type { Shape } from './shape.ts';
import { shapesOf } from './shapes.ts';

/** Status of a request whose connection ended without a response. */
const BROKEN = 0;

/** Creates a client that sends the worst known requests from the workspace with grown users. */
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

  /** Returns the shapes of an operation, or its example if it has no shapes. */
  function shapes({ id }: Operation, bytes: number): Shape[] {
    const shapes = shapesOf({ grown, bytes, random })[id] ?? [{ of: 'the example' }];
    // Starts with a random shape.
    const first = Math.floor(random() * shapes.length);
    return [...shapes.slice(first), ...shapes.slice(0, first)];
  }

  /** Sends a request. @returns the status of the response */
  async function fire(operation: Operation, shape: Shape): Promise<number> {
    const { key, headers } = await access.admit(operation, grown.workspace);
    const { body } = shape;
    let path = operation.path;
    for (const [name, value] of Object.entries({ ...operation.example.params, ...shape.params }))
      path = path.replace(`:${name}`, encodeURIComponent(value));
    return new Promise((resolve, reject) => {
      const responses = request({
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
      responses.on('response', (response) => {
        response.resume();
        response.on('end', () => resolve(response.statusCode!));
        response.on('error', reject);
      });
      responses.on('error', reject);
      responses.end(body);
    });
  }

  return {
    shapesOf: shapes,
    fire,
    /** Sends the documented example of an operation. */
    async example(operation: Operation): Promise<void> {
      const example = await access.example(operation, grown.workspace);
      await send(port, { ...example, ...(await access.admit(operation, grown.workspace)) });
    },
    /** Sends requests on all connections until the time is over. @returns responses by status; 0: broken connection */
    async sendBurst(
      operations: Operation[],
      { bytes, connections, milliseconds }: { bytes: number; connections: number; milliseconds: number },
    ): Promise<Map<number, number>> {
      const statuses = new Map<number, number>();
      const end = performance.now() + milliseconds;
      const connection = async () => {
        do {
          const operation = pick(random, operations);
          const [shape] = shapes(operation, bytes);
          // Failed requests are only counted: the test measures the delay of other workspaces.
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
