import { describe, expect, test } from 'vitest';
import type { Admitted } from '../../src/edge/admission.ts';
import { type EnqueuePlan, type ObjectsPlan, planRequest } from '../../src/edge/plan-request.ts';
import type { DirectOperation, Plan, QueuedOperation } from '../../src/operations/operation.ts';
import type { Key } from '../../src/store/idempotency-keys.ts';
import type { Channel } from '../../src/store/subscription-states.ts';
import { callerOf } from '../operations/caller.ts';

const key = { ownerId: 'shop', operation: 'users.track' } as Key;
const reply = { status: 201, body: { message: 'success' } };
const NO_OBJECTS: Plan = { objects: [], rejected: [], reply };

function admitted(change: Partial<Admitted> = {}): Admitted {
  return {
    request: { headers: { 'content-length': '120' } },
    ...{ caller: callerOf('shop', { channelOf: () => undefined }), body: {}, idempotencyKey: undefined },
    renewGroups: async () => new Map(),
    ...change,
  } as Admitted;
}

const queued = (plan: QueuedOperation['plan'], change: Partial<QueuedOperation> = {}) =>
  ({ kind: 'queued', method: 'POST', plan, ...change }) as QueuedOperation;
const direct = (change: Partial<DirectOperation>) =>
  ({ kind: 'direct', method: 'POST', ...change }) as DirectOperation;

const planObjects = (operation: QueuedOperation, request = admitted()) =>
  (planRequest(operation, request) as EnqueuePlan).planObjects();

describe('a direct operation', () => {
  test.each<[string, Partial<DirectOperation>, object]>([
    ['GET only reads', { method: 'GET' }, { kind: 'read', isLarge: false, isScim: false }],
    ['a POST marked as a read only reads', { readsOnly: true }, { kind: 'read', checked: key }],
    ['a large read takes a turn', { method: 'GET', isLarge: true }, { kind: 'read', isLarge: true }],
    ['a SCIM read takes a turn', { method: 'GET', auth: 'scim' }, { kind: 'read', isScim: true }],
    ['a POST takes effect once', {}, { kind: 'change', once: key, isScim: false }],
    ['a SCIM change takes a turn', { method: 'PUT', auth: 'scim' }, { kind: 'change', isScim: true }],
  ])('%s', (_, operation, expected) => {
    expect(planRequest(direct(operation), admitted({ idempotencyKey: key }))).toMatchObject(expected);
  });
});

describe('a queued operation', () => {
  const replyOf = () => reply;
  const readBack = async () => reply;

  test.each<[string, { plan: Plan; waitMs?: number }, Partial<ObjectsPlan>]>([
    ['answers from its plan', { plan: NO_OBJECTS }, { isAwaited: false, answer: { from: 'plan', reply } }],
    [
      'may wait for its effect first',
      { plan: NO_OBJECTS, waitMs: 900 },
      { isAwaited: true, answer: { from: 'plan', reply } },
    ],
    [
      'answers from the outcomes of its objects',
      { plan: { ...NO_OBJECTS, replyOf } },
      { isAwaited: true, answer: { from: 'outcomes', reply, replyOf } },
    ],
    [
      'answers from the store',
      { plan: { ...NO_OBJECTS, readBack }, waitMs: 900 },
      { isAwaited: true, answer: { from: 'store', reply, readBack } },
    ],
  ])('%s', (_, { plan, waitMs }, expected) => {
    const operation = queued(() => plan, waitMs === undefined ? {} : { readBackWithin: waitMs });
    expect(planRequest(operation, admitted())).toMatchObject({ kind: 'enqueue', waitMs });
    expect(planObjects(operation)).toMatchObject(expected);
  });

  test('with a key plans its objects only when they are needed', () => {
    let plans = 0;
    const operation = queued(() => {
      plans++;
      return NO_OBJECTS;
    });
    const plan = planRequest(operation, admitted({ idempotencyKey: key })) as EnqueuePlan;
    expect([plan.once, plans]).toEqual([key, 0]);
    plan.planObjects();
    expect(plans).toBe(1);
  });

  test('takes the size of its objects from the length of an uncompressed body', () => {
    const sizeOf = (headers: object) => {
      const request = { headers } as Admitted['request'];
      return (
        planObjects(
          queued(() => NO_OBJECTS),
          admitted({ request }),
        ) as ObjectsPlan
      ).bytes;
    };
    expect(sizeOf({ 'content-length': '120' })).toBe(120);
    expect(sizeOf({ 'content-length': '120', 'content-encoding': 'gzip' })).toBe(0);
  });
});

describe('a queued operation with a subscription group', () => {
  let plans = 0;
  const named = queued(({ channelOf }) => {
    plans++;
    const channel = channelOf('news');
    if (channel === undefined) throw new Error('unknown group');
    return { ...NO_OBJECTS, reply: { status: 201, body: channel } };
  });
  const groups = (...known: [string, Channel][]) => new Map(known);
  const renewed = (given: Map<string, Channel>) => {
    const calls: number[] = [];
    const renewGroups = async () => {
      calls.push(1);
      return given;
    };
    return { calls, renewGroups };
  };

  test('is planned at once if the cache has the group', () => {
    const { calls, renewGroups } = renewed(groups());
    const caller = callerOf('shop', { channelOf: () => 'sms' });
    expect(planObjects(named, admitted({ caller, renewGroups }))).toMatchObject({
      answer: { reply: { body: 'sms' } },
    });
    expect(calls).toEqual([]);
  });

  test('is planned again with the groups in the store if the cache lacks the group', async () => {
    const { calls, renewGroups } = renewed(groups(['news', 'email']));
    expect(await planObjects(named, admitted({ renewGroups }))).toMatchObject({
      answer: { reply: { body: 'email' } },
    });
    expect(calls).toEqual([1]);
  });

  test('is refused without a second plan if the store lacks the group as well', async () => {
    const { renewGroups } = renewed(groups(['offers', 'email']));
    plans = 0;
    await expect(planObjects(named, admitted({ renewGroups }))).rejects.toThrow('unknown group');
    expect(plans).toBe(1);
  });

  test('is refused without reading the store if its refusal is not about a group', () => {
    const { calls, renewGroups } = renewed(groups());
    const refusing = queued(() => {
      throw new Error('no object is valid');
    });
    expect(() => planObjects(refusing, admitted({ renewGroups }))).toThrow('no object is valid');
    expect(calls).toEqual([]);
  });
});
