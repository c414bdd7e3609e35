import { v7 as uuidv7 } from 'uuid';
import type { AcceptedObject, AcceptedRequest } from '../../src/jobs/envelope.ts';
import { homeLane, identifierKey, laneOf } from '../../src/queue/lanes.ts';
import type { Packable } from '../../src/queue/pack.ts';

export const LANES = 4;
export const workspaceId = workspaceOfHome(0);

/** Creates the id of a workspace whose fences are applied in the given lane. */
export function workspaceOfHome(lane: number): string {
  for (;;) {
    const id = uuidv7();
    if (homeLane(id, LANES) === lane) return id;
  }
}

/** Finds an external id, or an address, that belongs to the lane. */
export function userOf(lane: number, number = 0): string {
  return namesOf(lane, (name) => identifierKey({ external_id: name }), `user-${number}-`);
}

export function emailOf(lane: number, number = 0): string {
  return `${namesOf(lane, (name) => identifierKey({ email: `${name}@example.com` }), `mail-${number}-`)}@example.com`;
}

function namesOf(lane: number, keyOf: (name: string) => string, prefix: string): string {
  for (let try_ = 0; ; try_++) {
    const name = `${prefix}${try_}`;
    if (laneOf(workspaceId, keyOf(name), LANES) === lane) return name;
  }
}

const newPlace = () => ({ id: uuidv7(), index: 0 });

export function event(lane: number): AcceptedObject {
  const identifier = { external_id: userOf(lane) };
  return {
    ...newPlace(),
    create: true,
    kind: 'events',
    identifier,
    name: 'visited',
    time: '2026-01-02T03:04:05Z',
  };
}

/** An object that is ordered in two lanes: its user is in one lane, and the address that it sets is in the other. */
export function bridge(lane: number, other: number, number = 0): AcceptedObject {
  const identifier = { external_id: userOf(lane, number) };
  return {
    ...newPlace(),
    create: true,
    kind: 'attributes',
    identifier,
    standard: { email: emailOf(other, number) },
  };
}

export function deletion(lane: number): AcceptedObject {
  return { ...newPlace(), kind: 'delete', user: { identifier: { external_id: userOf(lane) } } };
}

export function request(...objects: AcceptedObject[]): Packable {
  return { request: requestOf(), objects, bytes: 100 * objects.length };
}

function requestOf(): AcceptedRequest {
  return { request_id: uuidv7(), workspace_id: workspaceId, accepted_at: '2026-01-02T03:04:05Z' };
}
