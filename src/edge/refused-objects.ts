import type { Rejection } from '../errors.ts';
import { millisecondsOf, NIL_UUID } from '../platform/ids.ts';
import type { Service } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { poll } from '../platform/poll.ts';
import type { Json } from '../profile/json.ts';
import { maskName, maskValues } from '../profile/masked.ts';
import type { RefusalCause } from '../profile/refusal.ts';
import type { Pool } from '../store/database.ts';
import {
  addRefusedObjects,
  addRefusedRequests,
  type RefusedGroup,
  type RefusedRequest,
} from '../store/refused-objects.ts';
import {
  addRefusedOfUsers,
  dayOf,
  MAX_OF_DAY,
  nameOf,
  type RefusedOfUser,
} from '../store/refused-of-users.ts';
import { identifiersIn } from './identifiers-in.ts';
import type { EdgeMetrics } from './metrics.ts';

/** Milliseconds between two writes. A request can be followed about a second after its answer. */
const WRITE_EVERY_MS = 1000;

/** Consecutive writes that may fail before what they carry is dropped: about a minute without Postgres. */
const MAX_ATTEMPTS = 60;

const HOUR_MS = 3_600_000;

/** Limits of what one web process keeps. Further refusals are counted with less detail or as dropped. */
export const refusalLimits = {
  /** Groups of one workspace, reason and hour. Further refusals share one group per reason, without field and key. */
  groupsOfReason: 100,
  /** Requests of one workspace and hour, not counting those that open a group. */
  requestsOfHour: 1000,
  /** Refused objects that are listed per request. */
  objectsOfRequest: 300,
  /** Refused objects of one workspace and hour that are also kept for their user. */
  usersOfHour: 1000,
  /** Groups, requests and listed objects that wait for the next write. */
  pendingGroups: 2000,
  pendingRequests: 2000,
  pendingObjects: 50_000,
  pendingUsers: 5000,
  /** Names of groups that are cached for an hour. */
  knownGroups: 20_000,
};

/** A request with refused objects, after its answer was sent. */
export interface RefusedObjectsOf {
  requestId: string;
  workspaceId: string;
  /** Undefined: the caller has no API key. */
  keyId: string | undefined;
  /** Id of the endpoint. */
  operation: string;
  body: Record<string, Json>;
  /** Number of its objects that were added to the lanes. */
  accepted: number;
  rejected: readonly Rejection[];
}

/** Data that waits for the next write. */
class Pending {
  readonly groups = new Map<string, RefusedGroup>();
  readonly requests = new Map<string, RefusedRequest>();
  /** Number of listed objects of all requests. */
  objects = 0;
  /** Refused objects of users, by workspace, name and day. At most `usersOfHour` are added per workspace and hour. */
  readonly users = new Map<string, RefusedOfUser>();
  /** Number of failed writes that contained some of the groups and requests. */
  attempts = 0;
  /** Number of failed writes that contained some of the users. */
  userAttempts = 0;
}

/** Data that this process has stored for one hour. */
class Hour {
  /** Names of groups by workspace and reason. */
  readonly groups = new Map<string, Set<string>>();
  knownGroups = 0;
  /** Number of requests by workspace. */
  readonly requests = new Map<string, number>();
  /** Number of objects that are kept for their user, by workspace. */
  readonly ofUsers = new Map<string, number>();
}

/** Refusals of one request with the same text, in the same array. */
interface Tally {
  first: Rejection;
  cause: RefusalCause;
  times: number;
}

/**
 * Collects refused objects in memory and adds them to the store once a second, so that answers do not wait for the
 * store. A process that is killed loses at most the last second. Requests without refused objects never come here.
 */
export class RefusedObjects implements Service {
  readonly name = 'refused objects';
  readonly #pool: Pool;
  readonly #log: Log;
  readonly #metrics: Pick<EdgeMetrics, 'rejectedReasons' | 'refusalsDropped'>;
  readonly #limits: typeof refusalLimits;
  readonly #serviceIdField: string;
  readonly #writes = poll(WRITE_EVERY_MS, () => this.write());
  #pending = new Pending();
  /** The latest two hours, because requests of both are answered around the full hour. */
  readonly #hours = new Map<number, Hour>();

  constructor(
    pool: Pool,
    {
      log,
      metrics,
      serviceIdField = 'service_id',
      limits = refusalLimits,
    }: {
      log: Log;
      /** Wire name of the service id. */
      serviceIdField?: string;
      metrics: Pick<EdgeMetrics, 'rejectedReasons' | 'refusalsDropped'>;
      limits?: typeof refusalLimits;
    },
  ) {
    this.#pool = pool;
    this.#log = log;
    this.#metrics = metrics;
    this.#limits = limits;
    this.#serviceIdField = serviceIdField;
  }

  /** Notes the refused objects of a request. Never waits and never throws for what a client sent. */
  note(request: RefusedObjectsOf): void {
    const { requestId, workspaceId, keyId = NIL_UUID, operation, body, accepted, rejected } = request;
    const hour = this.#hourOf(requestId);
    const objects: RefusedRequest['objects'] = [];
    let opensGroup = false;
    for (const { first, cause, times } of this.#tally(rejected, objects)) {
      this.#metrics.rejectedReasons.inc({ reason: cause.reason }, times);
      const { input_array: inputArray } = first;
      const named = { workspaceId, hour: hour.start, ...cause, operation, inputArray, keyId };
      const { group, isNew } = this.#groupOf(hour.kept, named, requestId) ?? {};
      if (!group) {
        this.#metrics.refusalsDropped.inc(times);
        continue;
      }
      group.objects += times;
      if (requestId > group.lastRequestId) group.lastRequestId = requestId;
      if (!isNew) continue;
      opensGroup = true;
      const shape = maskValues(objectAt(body, first));
      group.sample = typeof shape === 'object' && shape !== null ? shape : [shape];
    }
    const kept = { workspaceId, requestId, keyId, operation, accepted, rejected: rejected.length, objects };
    this.#keep(hour.kept, kept, opensGroup);
    this.#keepForUsers(hour.kept, request, objects);
  }

  /**
   * Counts the refusals of a request by text and array, and lists the first of them. Most refusals share a few texts.
   */
  #tally(rejected: readonly Rejection[], listed: RefusedRequest['objects']): Iterable<Tally> {
    const tallies = new Map<string, Tally>();
    for (const rejection of rejected) {
      const { type, input_array: inputArray, index } = rejection;
      const name = `${inputArray} ${type}`;
      let tally = tallies.get(name);
      if (!tally) {
        const cause = { reason: rejection.reason, field: maskName(rejection.field) };
        tally = { first: rejection, cause, times: 0 };
        tallies.set(name, tally);
      }
      tally.times++;
      const { reason, field } = tally.cause;
      if (listed.length < this.#limits.objectsOfRequest) listed.push({ inputArray, index, reason, field });
    }
    return tallies.values();
  }

  #hourOf(requestId: string): { start: Date; kept: Hour } {
    const start = Math.floor(millisecondsOf(requestId) / HOUR_MS) * HOUR_MS;
    let kept = this.#hours.get(start);
    if (!kept) {
      kept = new Hour();
      this.#hours.set(start, kept);
      for (const other of this.#hours.keys()) if (other < start - HOUR_MS) this.#hours.delete(other);
    }
    return { start: new Date(start), kept };
  }

  /** @returns undefined if memory is full */
  #groupOf(
    hour: Hour,
    named: Pick<
      RefusedGroup,
      'workspaceId' | 'hour' | 'reason' | 'field' | 'operation' | 'inputArray' | 'keyId'
    >,
    requestId: string,
  ): { group: RefusedGroup; isNew: boolean } | undefined {
    const { workspaceId, reason, operation, inputArray, field, keyId } = named;
    const name = [operation, inputArray, field, keyId].join('\0');
    const admission = this.#admit(hour, `${workspaceId} ${reason}`, name);
    const shown =
      admission === 'full' ? { ...named, operation: '', inputArray: '', field: '', keyId: NIL_UUID } : named;
    const key = [named.hour.getTime(), workspaceId, reason, admission === 'full' ? '' : name].join('\0');
    const { groups } = this.#pending;
    let group = groups.get(key);
    if (!group) {
      if (groups.size >= this.#limits.pendingGroups) return undefined;
      group = {
        ...shown,
        objects: 0,
        lastRequestId: requestId,
        sampleRequestId: requestId,
        sample: undefined,
      };
      groups.set(key, group);
    }
    return { group, isNew: admission === 'new' };
  }

  /** Whether a group is new in its hour, known already, or above the limit of its reason. */
  #admit(hour: Hour, reason: string, name: string): 'new' | 'known' | 'full' {
    let names = hour.groups.get(reason);
    if (names?.has(name)) return 'known';
    const { groupsOfReason, knownGroups } = this.#limits;
    if ((names?.size ?? 0) >= groupsOfReason || hour.knownGroups >= knownGroups) return 'full';
    if (!names) {
      names = new Set();
      hour.groups.set(reason, names);
    }
    names.add(name);
    hour.knownGroups++;
    return 'new';
  }

  /** Keeps the data to trace a request. A request that opens a group is kept even above the limit of its hour. */
  #keep(hour: Hour, request: RefusedRequest, opensGroup: boolean): void {
    const { requestsOfHour, pendingRequests, pendingObjects } = this.#limits;
    const already = hour.requests.get(request.workspaceId) ?? 0;
    if (already >= requestsOfHour && !opensGroup) return;
    const pending = this.#pending;
    if (pending.requests.size >= pendingRequests || pending.objects >= pendingObjects) return;
    hour.requests.set(request.workspaceId, already + 1);
    pending.requests.set(request.requestId, request);
    pending.objects += request.objects.length;
  }

  /** Keeps the listed objects for the users that they name. */
  #keepForUsers(
    hour: Hour,
    { workspaceId, requestId, operation, body }: RefusedObjectsOf,
    objects: RefusedRequest['objects'],
  ): void {
    const day = dayOf(requestId);
    let ofUsers = hour.ofUsers.get(workspaceId) ?? 0;
    for (const { inputArray, index, reason, field } of objects) {
      if (ofUsers >= this.#limits.usersOfHour || this.#pending.users.size >= this.#limits.pendingUsers) break;
      const identifiers = identifiersIn(objectAt(body, { input_array: inputArray, index }), {
        inputArray,
        serviceIdField: this.#serviceIdField,
      });
      if (identifiers.length === 0) continue;
      ofUsers++;
      const object = { requestId, operation, inputArray, index, reason, field };
      for (const identifier of identifiers) {
        const user = { workspaceId, name: nameOf(workspaceId, identifier), day, objects: [object] };
        addForUser(this.#pending.users, user);
      }
    }
    hour.ofUsers.set(workspaceId, ofUsers);
  }

  /** Adds pending data to the store. Never rejects: data that could not be written waits for the next write. */
  async write(): Promise<void> {
    const taken = this.#pending;
    if (taken.groups.size === 0 && taken.users.size === 0) return;
    this.#pending = new Pending();
    try {
      // Requests first: adding them a second time changes nothing, while groups would be counted twice.
      await addRefusedRequests(this.#pool, [...taken.requests.values()]);
      await addRefusedObjects(this.#pool, [...taken.groups.values()]);
    } catch (error) {
      if (taken.attempts === 0)
        this.#log.warn({ err: error }, 'records of refused objects could not be written; retrying');
      if (taken.attempts + 1 >= MAX_ATTEMPTS) this.#drop(taken);
      else this.#takeBack(taken);
    }
    // In a separate attempt, so that a failure does not drop or repeat the counts.
    try {
      await addRefusedOfUsers(this.#pool, [...taken.users.values()]);
    } catch (error) {
      if (taken.userAttempts === 0)
        this.#log.warn({ err: error }, 'refused objects of users could not be written; retrying');
      if (taken.userAttempts + 1 >= MAX_ATTEMPTS)
        this.#log.warn(
          { dropped: taken.users.size },
          'refused objects of users were dropped, because they could not be written for a minute',
        );
      else this.#takeBackUsers(taken);
    }
  }

  /** Merges unwritten groups and requests with newer ones, within the limits of memory. */
  #takeBack(taken: Pending): void {
    const pending = this.#pending;
    pending.attempts = taken.attempts + 1;
    for (const [key, group] of taken.groups) {
      const later = pending.groups.get(key);
      if (later) {
        later.objects += group.objects;
        later.sample = group.sample ?? later.sample;
        later.sampleRequestId = group.sampleRequestId;
      } else if (pending.groups.size < this.#limits.pendingGroups) pending.groups.set(key, group);
      else this.#metrics.refusalsDropped.inc(group.objects);
    }
    for (const [id, request] of taken.requests) {
      if (pending.requests.size >= this.#limits.pendingRequests) break;
      pending.requests.set(id, request);
      pending.objects += request.objects.length;
    }
  }

  /** Merges unwritten users with newer ones, within the limits of memory. */
  #takeBackUsers(taken: Pending): void {
    const pending = this.#pending;
    pending.userAttempts = taken.userAttempts + 1;
    for (const user of taken.users.values()) {
      if (pending.users.size >= this.#limits.pendingUsers) break;
      addForUser(pending.users, user);
    }
  }

  #drop({ groups }: Pending): void {
    let dropped = 0;
    for (const { objects } of groups.values()) dropped += objects;
    this.#metrics.refusalsDropped.inc(dropped);
    this.#log.warn(
      { dropped },
      'records of refused objects were dropped, because Postgres was unavailable for a minute',
    );
  }

  async stop(): Promise<void> {
    await this.#writes.stop();
    await this.write();
  }
}

/** Adds objects to a user and day; the newest MAX_OF_DAY objects stay. */
function addForUser(users: Map<string, RefusedOfUser>, user: RefusedOfUser): void {
  const key = `${user.workspaceId} ${user.day} ${user.name.toString('base64')}`;
  const other = users.get(key);
  if (!other) users.set(key, user);
  else
    other.objects = [...user.objects, ...other.objects]
      .sort((one, two) => (one.requestId < two.requestId ? 1 : one.requestId > two.requestId ? -1 : 0))
      .slice(0, MAX_OF_DAY);
}

/** The refused object as sent. A client may send one object instead of an array. */
function objectAt(
  body: Record<string, Json>,
  { input_array, index }: Pick<Rejection, 'input_array' | 'index'>,
): Json {
  const sent = body[input_array] ?? null;
  return Array.isArray(sent) ? (sent[index] ?? null) : sent;
}
