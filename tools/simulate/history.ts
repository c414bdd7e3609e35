import type { Effect } from './database.ts';
import type { Element } from './objects.ts';

/** An object in a request of a client. */
export interface SentObject {
  id: string;
  /** Index in the request. */
  index: number;
  request: SentRequest;
  workspaceId: string;
  /** Keys of the users in the object: number of the workspace, and external id or alias. */
  names: string[];
  /** The object in the form that the client sends. Absent in a simulation without Postgres. */
  element?: Element;
}

export interface SentRequest {
  number: number;
  /** Simulated milliseconds. */
  sentAt: number;
  /** Simulated milliseconds; undefined if the client received no acknowledgement. */
  acknowledgedAt: number | undefined;
  objects: SentObject[];
}

/** The requests of all clients, with their acknowledgements. */
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
    | 'I4 effects are in order'
    | 'I5 profiles are those of the sequential model'
    | 'I6 the queue drains'
    | 'streams are in order'
    | 'streams are complete'
    | 'nothing is left of a deleted user'
    | 'no error ends a process';
  text: string;
}

/** Compares the acknowledged requests with the effects in the database. */
export function check(history: History, effects: readonly Effect[]): Violation[] {
  return [...checkOnce(history, effects), ...checkOrder(history, effects)];
}

function checkOnce(history: History, effects: readonly Effect[]): Violation[] {
  const violations: Violation[] = [];
  const counts = new Map<string, number>();
  const applied = new Map<string, number>();
  for (const { objectId, kind } of effects) {
    counts.set(objectId, (counts.get(objectId) ?? 0) + 1);
    // A replayed dead letter may fail several times, and takes effect once.
    if (kind === 'applied' || applied.has(objectId)) applied.set(objectId, (applied.get(objectId) ?? 0) + 1);
  }
  for (const [id, count] of applied) {
    if (count > 1)
      violations.push({
        guarantee: 'I2 no object is applied twice',
        text: `object ${id} took effect ${count} times`,
      });
  }
  for (const request of history.requests) {
    if (request.acknowledgedAt === undefined) continue;
    for (const { id } of request.objects)
      if (!counts.has(id))
        violations.push({
          guarantee: 'I1 every acknowledged object is applied',
          text: `object ${id} of request ${request.number} was acknowledged at ${request.acknowledgedAt.toFixed(1)} and did not take effect`,
        });
  }
  return violations;
}

/**
 * Checks the order for each user. If object A was acknowledged before object B was sent, A must take effect first. Objects
 * of one request must take effect in the order of the request. Dead letters and their replays are not checked.
 */
export function checkOrder(history: History, effects: readonly Effect[]): Violation[] {
  const violations: Violation[] = [];
  /** The most recently sent object that has taken effect, by name. */
  const latest = new Map<string, SentObject>();
  const failed = new Set<string>();
  for (const { objectId, kind } of effects) {
    const object = history.objects.get(objectId);
    if (kind === 'dead letter') failed.add(objectId);
    if (!object || failed.has(objectId)) continue;
    for (const name of object.names) {
      const before = latest.get(name);
      if (before && isAfter(before, object))
        violations.push({
          guarantee: 'I4 effects are in order',
          text:
            `${name}: object ${object.id} (request ${object.request.number}, index ${object.index}) took effect after ` +
            `${before.id} (request ${before.request.number}, index ${before.index}), which was sent later`,
        });
      if (!before || isLater(object, before)) latest.set(name, object);
    }
  }
  return violations;
}

/** Returns whether the first object must take effect after the second. */
function isAfter(one: SentObject, other: SentObject): boolean {
  if (one.request === other.request) return one.index > other.index;
  const { acknowledgedAt } = other.request;
  return acknowledgedAt !== undefined && acknowledgedAt < one.request.sentAt;
}

function isLater(one: SentObject, other: SentObject): boolean {
  if (one.request === other.request) return one.index > other.index;
  return one.request.sentAt > other.request.sentAt;
}

/**
 * Returns a function that finds objects whose users a delete may have removed: users that a client deleted, and users that
 * were merged with them.
 */
export function isReachedByDelete(
  { requests }: History,
  workspaceId: string,
): (object: SentObject) => boolean {
  const groups = new Map<string, Set<string>>();
  const deleted = new Set<string>();
  for (const { objects } of requests)
    for (const object of objects) {
      if (object.workspaceId !== workspaceId) continue;
      const joined = new Set(object.names.flatMap((name) => [name, ...(groups.get(name) ?? [])]));
      for (const name of joined) groups.set(name, joined);
      if (object.element?.kind === 'delete') for (const name of object.names) deleted.add(name);
    }
  return ({ names }) => names.some((name) => [...groups.get(name)!].some((one) => deleted.has(one)));
}
