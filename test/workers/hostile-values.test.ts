import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { allOperations } from '../../src/operations/index.ts';
import type { QueuedOperation } from '../../src/operations/operation.ts';
import type { Json } from '../../src/profile/json.ts';
import { compile } from '../../src/schemas/compile.ts';
import { runBatch } from '../../workers/batch/run-batch.ts';
import { callerOf } from '../operations/caller.ts';
import { createStore, type Store } from '../operations/in-process.ts';
import { deliver, readDeadLetters } from './batch.ts';
import { everybody, hostileRequest } from './hostile-values.ts';

/** Number of request sequences; set for example `HOSTILE_SEQUENCES=2000` for a longer search. */
const SEQUENCES = Number(process.env.HOSTILE_SEQUENCES ?? 120);

/** Milliseconds after which no further sequence starts. */
const PATIENCE = 60_000 * Math.max(1, SEQUENCES / 120);

let store: Store;
beforeAll(async () => {
  store = await createStore();
});
afterAll(() => store.stop());

const operations = new Map(
  allOperations('service_id').flatMap((operation) =>
    operation.kind === 'queued'
      ? [[operation.id, { operation, check: operation.body && compile(operation.body) }] as const]
      : [],
  ),
);

/** Returns the objects that web creates for a request; an empty list if web refuses the request. */
function accepted({ id, body }: { id: string; body: Record<string, Json> }) {
  const { operation, check } = operations.get(id)!;
  // A JSON round trip, as over the network.
  const sent = JSON.parse(JSON.stringify(body));
  if (check && !check(sent)) return [];
  try {
    return (operation as QueuedOperation).plan(callerOf(store.workspaceId), sent).objects;
  } catch (error) {
    if ((error as { status?: number }).status === 400) return [];
    throw error;
  }
}

/** Reasons for refusing an object in memory, where the decision depends on the stored profile. */
const OURS =
  /custom attributes|aliases, the most|deprecated external ids|more than \d+ profiles|'[^']*' is not valid|nest/;

test(
  'G4: no value that web accepts, even at a limit, makes Postgres raise an error',
  async () => {
    let taken = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(hostileRequest, { minLength: 1, maxLength: 6 }), async (requests) => {
        for (const request of requests) {
          const objects = accepted(request);
          taken += objects.length;
          if (objects.length === 0) continue;
          await runBatch(store.database.pool, [deliver({ id: store.workspaceId }, objects)]);
        }
        const { body, status } = await store.exportIds(everybody);
        expect(status).toBe(201);
        // Stored numbers fit into JSON: a number that does not would have become null.
        for (const user of body.users)
          expect(typeof (user.total_revenue ?? 0), JSON.stringify(user)).toBe('number');
      }),
      { numRuns: SEQUENCES, interruptAfterTimeLimit: PATIENCE, markInterruptAsFailure: false },
    );
    expect(taken).toBeGreaterThan(SEQUENCES / 2);
    const reasons = (await readDeadLetters(store.database.pool)).map(({ reason }) => reason);
    expect(reasons.filter((reason) => !OURS.test(reason))).toEqual([]);
  },
  4 * PATIENCE,
);
