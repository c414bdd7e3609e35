import { createHash } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { createIdempotency, queuedAttempt } from '../../src/edge/idempotency.ts';
import type { ObjectsPlan } from '../../src/edge/plan-request.ts';
import { answerOf } from '../../src/edge/reply.ts';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { newId } from '../../src/platform/ids.ts';
import { createGroupCommit } from '../../src/queue/enqueue.ts';
import { createLaneProducer } from '../../src/queue/lane-producer.ts';
import { recordWhole } from '../../src/store/ledger.ts';
import { createScene, LANES, log, type Scene, workspaceId } from '../queue/scene.ts';

let scene: Scene;
let send: (key: string, users: string[], lanes?: number) => Promise<string>;
beforeAll(async () => {
  scene = await createScene('redis');
  const producer = createLaneProducer(scene.connection, { timeout: scene.config.QUEUE_TIMEOUT_MS, log });
  const idempotency = createIdempotency(scene.pool as never, log);
  send = async (key, users, lanes = LANES) => {
    const request = { request_id: newId(), workspace_id: workspaceId, accepted_at: 'now' };
    const options = {
      maxEnvelopeObjects: 2000,
      maxPendingObjects: 1000,
      maxPendingBytes: 1e9,
      backlog: () => 0,
    };
    const reply = { status: 201, body: { message: 'success' } };
    const objects = users.map(objectOf);
    const planned: ObjectsPlan = {
      ...{ objects, bytes: objects.length * 100, rejected: [], isAwaited: false },
      answer: { from: 'plan', reply },
    };
    const attempt = queuedAttempt(createGroupCommit(producer, { lanes, ...options }), request, {
      plan: { kind: 'enqueue', once: undefined, waitMs: undefined, planObjects: () => planned },
      answer: async ({ answer }) => answerOf(answer.reply),
    });
    const hash = createHash('sha256').update(key).digest();
    const fingerprint = createHash('sha256').update(users.join()).digest();
    const kept = await idempotency.perform(
      { ownerId: workspaceId, operation: 'users.track', hash, fingerprint },
      attempt,
    );
    expect(kept.reply).toMatchObject(reply);
    return kept.requestId;
  };
});
afterAll(() => scene.stop());
beforeEach(async () => {
  await scene.operator!.flushall();
  await scene.pool.query('delete from queue_losses');
});

const objectOf = (user: string, index: number): AcceptedObject => ({
  ...{ id: newId(), index, create: true },
  ...{ kind: 'attributes', identifier: { external_id: user }, set: { number: index } },
});

/** Ids of waiting envelopes, in the order of the lanes. */
async function waiting() {
  const lanes = await Promise.all(scene.queues.map((queue) => queue.getJobs(['waiting'], 0, -1, true)));
  return lanes.flat().map(({ id }) => id!);
}

/** Empties the queue, and records the loss. */
async function lose(): Promise<void> {
  await scene.operator!.flushall();
  await scene.pool.query(`
    insert into queue_losses (found, additions_known, additions_found, accepted_from, accepted_until, noticed_by)
    values ('empty', 1, 0, now() - interval '1 minute', clock_timestamp(), 'web')`);
}

const USERS = ['ada', 'grace', 'edsger', 'barbara', 'alan', 'donald'];

test('G2: a repeated key whose request was lost with the queue applies the request once', async () => {
  const first = await send('lost', USERS);
  const envelopes = await waiting();
  expect(envelopes.length).toBeGreaterThan(1);
  await lose();
  const second = await send('lost', USERS);
  expect(second).not.toBe(first);
  expect(await waiting()).toEqual(envelopes);
  await scene.operator!.flushall();
  expect(await send('lost', USERS)).toBe(second);
  expect(await waiting()).toEqual([]);
});

test('G2: concurrent repeats of a lost request add it once and get one answer', async () => {
  await send('at once', USERS);
  const envelopes = await waiting();
  await lose();
  const answers = await Promise.all([send('at once', USERS), send('at once', USERS), send('at once', USERS)]);
  expect(new Set(answers).size).toBe(1);
  expect(await waiting()).toEqual(envelopes);
});

test('a stored answer holds after a loss if all envelopes of its request are in the ledger', async () => {
  const first = await send('applied', USERS);
  await recordWhole(scene.pool as never, await waiting());
  await lose();
  expect(await send('applied', USERS)).toBe(first);
  expect(await waiting()).toEqual([]);
});

test('a stored answer holds if the queue has lost no data since', async () => {
  await lose();
  const first = await send('later', USERS);
  await scene.operator!.flushall();
  expect(await send('later', USERS)).toBe(first);
  expect(await waiting()).toEqual([]);
});

test('G2: a stored answer holds if the repeated request is packed into other lanes', async () => {
  const first = await send('other lanes', USERS);
  await recordWhole(scene.pool as never, (await waiting()).slice(0, 1));
  await lose();
  expect(await send('other lanes', USERS, 1)).toBe(first);
  expect(await waiting()).toEqual([]);
});
