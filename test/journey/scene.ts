import { afterAll, beforeAll, expect } from 'vitest';
import type { Json } from '../../src/profile/json.ts';
import { type Backend, type Fleet, startFleet } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { waitUntil } from '../setup/fixtures.ts';

export const time = '2026-01-31T12:00:00.000Z';

export const ids = (...external_ids: string[]) => ({ external_ids });

/**
 * Tests the way from HTTP to Postgres and back: /users/export/ids shows the data that /users/track accepts.
 */
export function journey(backend: Backend) {
  let fleet: Fleet;
  beforeAll(async () => {
    fleet = await startFleet(backend, { edges: 1, workers: 1 });
  });
  afterAll(() => fleet.stop());

  async function track(json: Record<string, Json>, key = fleet.workspace.key) {
    const { status, body } = await send(fleet.edges[0]!.port, { path: '/users/track', key, json });
    expect({ status, message: body.message }).toEqual({ status: 201, message: 'success' });
    return body;
  }

  /** Returns all users with these identifiers. */
  async function read(json: Record<string, Json>) {
    const { key } = fleet.workspace;
    const { status, body } = await send(fleet.edges[0]!.port, { path: '/users/export/ids', key, json });
    expect(status).toBe(201);
    return body.users;
  }

  /** Waits until the one user has the expected data, and returns it. */
  async function shows(identifier: Record<string, Json>, expected: object) {
    let users: Record<string, Json>[] = [];
    const check = async () => {
      users = await read(identifier);
      expect(users).toEqual([expect.objectContaining(expected)]);
      return true;
    };
    await waitUntil(check, { what: `${JSON.stringify(identifier)} to show ${JSON.stringify(expected)}` });
    return users[0]!;
  }

  return { fleet: () => fleet, track, read, shows };
}
