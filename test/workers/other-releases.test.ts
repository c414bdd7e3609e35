import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { NIL, v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Envelope } from '../../src/jobs/envelope.ts';
import { Scheduler } from '../../workers/lane/scheduler.ts';
import { createWorkerMetrics } from '../../workers/metrics.ts';
import type { TestWorkspace } from '../setup/workspace.ts';
import { applyBatch } from './apply-batch.ts';
import { applyThrough } from './apply-through.ts';
import { createStore, deliver, event, point, readDeadLetters, readSums, silent } from './batch.ts';

let pool: pg.Pool;
let workspace: TestWorkspace;
let scheduler: Scheduler;
beforeAll(async () => {
  ({ pool, workspace } = await createStore());
});
beforeEach(async () => {
  await pool.query('truncate dead_letters, profiles, events, event_summaries, usage');
  scheduler = new Scheduler(pool, { metrics: createWorkerMetrics(), log: silent });
});
afterAll(() => pool.end());

/** Applies an envelope like a lane, which waits for the result. */
async function apply(envelope: unknown): Promise<void> {
  const late = sleep(5000, 'late');
  const done = applyThrough(scheduler, { id: uuidv7(), lane: 0, envelope: envelope as Envelope });
  const first = await Promise.race([done, late]);
  scheduler.abandon();
  expect(first, 'the lane is not blocked').toBeUndefined();
}

describe('a lane contains data of an unknown format', () => {
  test.each<[string, unknown]>([
    ['of another shape', { version: 9, batches: [{ rows: [1, 2] }] }],
    ['whose objects are not a list', { requests: [], objects: { 0: 'x' } }],
    ['with only the replay flag', { replay: true }],
    ['that is null', null],
    ['that is a text', 'envelope'],
  ])('G4: a job %s is kept as a single dead letter, and the lane continues', async (_, envelope) => {
    await apply(envelope);
    const deadLetterRows = await readDeadLetters(pool);
    expect(deadLetterRows).toMatchObject([
      { kind: 'envelope', workspace_id: NIL, reason: 'the format of the job is unknown to this release' },
    ]);
    expect(deadLetterRows[0]!.object).toEqual(envelope);
  });

  const requests = (...counts: number[]) =>
    counts.map((count) => ({ ...deliver(workspace, []).envelope.requests[0]!, count }));
  const oddities: [string, object | null, RegExp][] = [
    ['of a kind that is unknown to this release', { ...event('ann'), kind: 'merges' }, /kind 'merges'/],
    ['without a name', { ...event('ann'), name: undefined }, /'name' is required/],
    ['with an identifier of another kind', { ...event('ann'), identifier: { device: 'x' } }, /'identifier'/],
    ['with a number as external id', { ...event('ann'), identifier: { external_id: 7 } }, /'identifier/],
    ['with an empty identifier', { ...event('ann'), identifier: {} }, /'identifier/],
    [
      'with half an alias',
      { ...event('ann'), identifier: { user_alias: { alias_label: 'l' } } },
      /'identifier/,
    ],
    ['without an id', { ...event('ann'), id: undefined }, /'id'/],
    ['that is null', null, /'id'/],
  ];

  test.each(oddities)(
    'G4: an object %s becomes a dead letter, and its neighbours are applied',
    async (_, object, reason) => {
      await apply(
        JSON.parse(JSON.stringify({ requests: requests(3), objects: [point('ann'), object, event('ann')] })),
      );
      const deadLetterRows = await readDeadLetters(pool);
      expect(deadLetterRows).toHaveLength(1);
      expect(deadLetterRows[0]!.reason).toMatch(reason);
      expect(deadLetterRows[0]!.object).toEqual(JSON.parse(JSON.stringify(object)));
      expect(await readSums(pool, workspace)).toMatchObject({ users: 1, points: 1, events: 1, counted: 1 });
    },
  );

  test.each<[string, unknown]>([
    ['that is missing', undefined],
    ['that is a text', '1'],
    ['that is negative', -1],
  ])('G4: the objects of a request with a count %s become dead letters', async (_, count) => {
    const [request] = requests(1);
    await apply(
      JSON.parse(
        JSON.stringify({ requests: [{ ...request, count }], objects: [event('ann'), event('ann')] }),
      ),
    );
    const deadLetterRows = await readDeadLetters(pool);
    expect(deadLetterRows).toHaveLength(2);
    expect(deadLetterRows[0]!.reason).toMatch(/request/);
  });

  test('G4: objects after those that the requests count become dead letters', async () => {
    await apply({ requests: requests(1), objects: [event('ann'), event('ann')] });
    expect(await readDeadLetters(pool)).toHaveLength(1);
    expect(await readSums(pool, workspace)).toMatchObject({ events: 1 });
  });

  test('G4: a replay envelope with only invalid objects keeps each of them as a dead letter', async () => {
    const same = { ...event('ann'), kind: 'merges' };
    const objects = [...oddities.map(([, object]) => object), same, same];
    await apply(JSON.parse(JSON.stringify({ requests: requests(objects.length), objects, replay: true })));
    expect(await readDeadLetters(pool)).toHaveLength(objects.length);
  });

  test('G4: the objects of a request with an invalid workspace id become dead letters', async () => {
    const request = { ...requests(1)[0]!, workspace_id: 'x'.repeat(36) };
    await apply({ requests: [request, ...requests(1)], objects: [event('ann'), event('ann')] });
    expect(await readDeadLetters(pool)).toHaveLength(1);
    expect(await readSums(pool, workspace)).toMatchObject({ events: 1 });
  });

  test('G2: a redelivered envelope does not create a second dead letter', async () => {
    const delivery = { id: uuidv7(), lane: 0, envelope: { version: 9 } as unknown as Envelope };
    const first = await applyBatch(pool, [delivery]);
    expect(first).toMatchObject({ kind: 'applied', objects: 0, deadLetters: [delivery.id] });
    expect(await applyBatch(pool, [delivery])).toEqual({ kind: 'skipped' });
    expect(await readDeadLetters(pool)).toHaveLength(1);
  });

  test('fields that a later release added are ignored', async () => {
    const later = {
      ...deliver(workspace, [{ ...event('ann'), channel: 'app' } as never]).envelope,
      trace: 'x',
    };
    await apply(later);
    expect(await readDeadLetters(pool)).toEqual([]);
    expect(await readSums(pool, workspace)).toMatchObject({ events: 1 });
  });
});
