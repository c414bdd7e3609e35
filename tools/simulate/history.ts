import type { Effect } from './database.ts';

/** An object that a client has sent. */
export interface SentObject {
  id: string;
  /** Place in its request. */
  index: number;
  request: SentRequest;
  /** `workspace user` of each user that it names. */
  names: string[];
  isDelete: boolean;
}

export interface SentRequest {
  number: number;
  /** Moments of the simulated time; absent: no answer, or a refusal. */
  sentAt: number;
  acknowledgedAt: number | undefined;
  objects: SentObject[];
}

/** What clients have sent, and which of it was acknowledged. */
export class History {
  readonly requests: SentRequest[] = [];
  readonly objects = new Map<string, SentObject>();

  add(request: SentRequest): void {
    this.requests.push(request);
    for (const object of request.objects) this.objects.set(object.id, object);
  }
}

/** A guarantee that a simulation did not keep. */
export interface Violation {
  guarantee:
    | 'I1 every acknowledged object is applied'
    | 'I2 no object is applied twice'
    | 'I4 effects are in order';
  text: string;
  objects: string[];
}

/** Compares what was acknowledged with what took effect. */
export function check(history: History, effects: readonly Effect[]): Violation[] {
  return [...checkOnce(history, effects), ...checkOrder(history, effects)];
}

function checkOnce(history: History, effects: readonly Effect[]): Violation[] {
  const violations: Violation[] = [];
  const counts = new Map<string, number>();
  for (const { objectId } of effects) counts.set(objectId, (counts.get(objectId) ?? 0) + 1);
  for (const [id, count] of counts) {
    if (count > 1)
      violations.push({
        guarantee: 'I2 no object is applied twice',
        text: `object ${id} took effect ${count} times`,
        objects: [id],
      });
  }
  for (const request of history.requests) {
    if (request.acknowledgedAt === undefined) continue;
    for (const { id } of request.objects)
      if (!counts.has(id))
        violations.push({
          guarantee: 'I1 every acknowledged object is applied',
          text: `object ${id} of request ${request.number} was acknowledged at ${request.acknowledgedAt.toFixed(1)} and did not take effect`,
          objects: [id],
        });
  }
  return violations;
}

/**
 * For each user: an object that was acknowledged before another one was sent takes effect before it, and so do objects of
 * one request in their order. A dead letter has no place in this order.
 */
function checkOrder(history: History, effects: readonly Effect[]): Violation[] {
  const violations: Violation[] = [];
  /** By name: the object among those that took effect that was sent last. */
  const latest = new Map<string, SentObject>();
  for (const { objectId, kind } of effects) {
    const object = history.objects.get(objectId);
    if (!object || kind === 'dead letter') continue;
    for (const name of object.names) {
      const before = latest.get(name);
      if (before && isAfter(before, object))
        violations.push({
          guarantee: 'I4 effects are in order',
          text:
            `${name}: object ${object.id} (request ${object.request.number}, index ${object.index}) took effect after ` +
            `${before.id} (request ${before.request.number}, index ${before.index}), which was sent later`,
          objects: [before.id, object.id],
        });
      if (!before || isLater(object, before)) latest.set(name, object);
    }
  }
  return violations;
}

/** Whether the first of two objects had to take effect after the second. */
function isAfter(one: SentObject, other: SentObject): boolean {
  if (one.request === other.request) return one.index > other.index;
  const { acknowledgedAt } = other.request;
  return acknowledgedAt !== undefined && acknowledgedAt < one.request.sentAt;
}

function isLater(one: SentObject, other: SentObject): boolean {
  if (one.request === other.request) return one.index > other.index;
  return one.request.sentAt > other.request.sentAt;
}
