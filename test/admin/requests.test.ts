import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Envelope } from '../../src/jobs/envelope.ts';
import { encodeTraces } from '../../src/jobs/traces.ts';
import type { Identifier } from '../../src/profile/identifier.ts';
import type { Database } from '../../src/store/database.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { addRefusedObjects, addRefusedRequests } from '../../src/store/refused-objects.ts';
import { createDatabase } from '../setup/fixtures.ts';
import { expectRefusal, makeWorkspaces, type PenstockOn, penstockOn } from './penstock.ts';

let on: PenstockOn;
let database: Database;
let workspaceId: string;
let keyId: string;
beforeAll(async () => {
  const { url } = await createDatabase();
  on = penstockOn(url);
  database = openDatabase(url, 1);
  [workspaceId] = (await makeWorkspaces(url, 'shop')) as [string];
  const key = await on.json('keys create --workspace shop --name till --permissions users.track');
  keyId = key.api_key_id;
});
afterAll(() => database?.stop());

/** Records a request with one event of a user as a worker does when it has applied it. */
async function recordApplied(identifier: Identifier = { external_id: 'ada' }): Promise<string> {
  const request = { request_id: uuidv7(), workspace_id: workspaceId, key_id: keyId };
  const event = { kind: 'events', id: uuidv7(), index: 0, identifier };
  const envelope = { requests: [{ ...request, count: 1 }], objects: [event] } as unknown as Envelope;
  await database.pool.query('insert into ledger (envelope_id, applied_at, requests) values ($1, now(), $2)', [
    ...[uuidv7(), encodeTraces(envelope)],
  ]);
  return request.request_id;
}

/** Stores a request with one refused object as web does. */
async function recordRefused(reason: string, objects = 1): Promise<string> {
  const requestId = uuidv7();
  const named = { inputArray: 'events', reason, field: 'name' };
  const cause = { workspaceId, operation: 'users.track', keyId, ...named };
  await addRefusedRequests(database.pool, [
    { ...cause, requestId, accepted: 0, rejected: objects, objects: [{ ...named, index: 0 }] },
  ]);
  await addRefusedObjects(database.pool, [
    { ...cause, hour: new Date(), objects, lastRequestId: requestId, sampleRequestId: requestId, sample: {} },
  ]);
  return requestId;
}

test('requests list prints the latest requests with their counts, page by page', async () => {
  const applied = await recordApplied();
  const refused = await recordRefused('required');
  const first = await on.json('requests list --workspace shop --limit 1');
  expect(first).toEqual({
    requests: [
      {
        ...{ request_id: refused, arrived_at: expect.any(String), operation: 'users.track' },
        ...{ arrays: ['events'], api_key_id: keyId, api_key: 'till', accepted: 0, refused: 1, failed: 0 },
      },
    ],
    next: refused,
  });
  const second = await on.json(`requests list --workspace shop --limit 1 --after ${first.next}`);
  expect(second).toMatchObject({ requests: [{ request_id: applied, operation: null }], next: null });
  const named = async (filter: string) =>
    (await on.json(`requests list --workspace shop ${filter}`)).requests.map(
      (request: { request_id: string }) => request.request_id,
    );
  expect(await named('--state applied')).toEqual([applied]);
  expect(await named('--state refused --array events')).toEqual([refused]);
  expect(await named(`--key ${uuidv7()}`)).toEqual([]);
});

test('requests list finds the requests of a user by an identifier, also by an unknown one', async () => {
  const requestId = await recordApplied({ user_alias: { alias_label: 'crm', alias_name: 'grace' } });
  const named = async (filter: string) =>
    (await on.json(`requests list --workspace shop ${filter}`)).requests.map(
      (request: { request_id: string }) => request.request_id,
    );
  expect(await named('--user crm:grace')).toEqual([requestId]);
  expect(await named('--user grace')).toEqual([]);
  expect(await named('--user ada --state applied')).not.toContain(requestId);
});

test('requests list rejects an unknown state and names the states', async () => {
  expectRefusal(
    await on.run('requests list --workspace shop --state lost'),
    "'lost'",
    'applied, failed, refused',
  );
});

test('refused-objects list prints the causes of a range, the most frequent first', async () => {
  const requestId = await recordRefused('too_large', 7);
  const { refused_objects: causes } = await on.json('refused-objects list --workspace shop --range hour');
  expect(causes[0]).toEqual({
    ...{ reason: 'too_large', field: 'name', array: 'events', operation: 'users.track', workspace: 'shop' },
    ...{ api_key_id: keyId, api_key: 'till', objects: 7, last_request_id: requestId },
    last_refused_at: expect.any(String),
  });
  const only = await on.json('refused-objects list --workspace shop --reason blocked');
  expect(only).toEqual({ refused_objects: [], next: null });
  expectRefusal(await on.run('refused-objects list'), '--workspace');
});
