import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { AcceptedObject, Envelope } from '../../src/jobs/envelope.ts';
import { encodeTraces } from '../../src/jobs/traces.ts';
import { pack } from '../../src/queue/pack.ts';
import { openConsole, page } from './console-scene.ts';

let scene: Awaited<ReturnType<typeof openConsole>>;
beforeAll(async () => {
  scene = await openConsole();
});
afterAll(() => scene?.installation.stop());

/** Accepts a request with one event. The lane has no worker. */
async function accept(key_id: string | undefined): Promise<string> {
  const request = {
    request_id: uuidv7(),
    workspace_id: scene.shop,
    accepted_at: new Date().toISOString(),
    key_id,
  };
  const event = { kind: 'events', id: uuidv7(), index: 0, identifier: { external_id: 'ada' }, name: 'seen' };
  const objects = [{ ...event, time: request.accepted_at } as AcceptedObject];
  await scene.installation.producer.add(pack([{ request, objects, bytes: 100 }], 1, 100));
  return request.request_id;
}

/** Records a request with one event as a worker does when it has applied it. */
async function recordApplied(key_id: string): Promise<string> {
  const request = {
    ...{ request_id: uuidv7(), workspace_id: scene.shop, accepted_at: new Date().toISOString(), key_id },
  };
  const event = { kind: 'events', id: uuidv7(), index: 0, identifier: { external_id: 'ada' } };
  const envelope = { requests: [{ ...request, count: 1 }], objects: [event] } as unknown as Envelope;
  await scene.query(
    'insert into ledger (envelope_id, applied_at, requests) values ($1, now(), $2)',
    ...[uuidv7(), encodeTraces(envelope)],
  );
  return request.request_id;
}

test('a request shows the name of its API key, with a link for viewers who may see keys', async () => {
  const id = await accept(scene.key);
  const { status, text } = await page(scene.operator, `/requests/${id}`);
  expect(status).toBe(200);
  const [{ name, identifier }] = await scene.query(
    'select name, identifier from api_keys where id = $1',
    scene.key,
  );
  expect(text).toContain(`<a href="/keys/${scene.key}">${name}</a>`);
  expect(text).not.toContain(identifier);

  const appGroups = [{ workspace: scene.shop, permissions: ['dev_console'], teams: [] }];
  const { visitor } = await scene.people.arrive([], { appGroups });
  const plain = (await page(visitor, `/requests/${id}`)).text;
  expect(plain).toContain(name);
  expect(plain).not.toContain(`/keys/${scene.key}`);
});

test('a request without an API key says so, and a request of a deleted key shows its id', async () => {
  expect((await page(scene.operator, `/requests/${await accept(undefined)}`)).text).toContain(
    'sent from here',
  );
  const gone = uuidv7();
  expect((await page(scene.operator, `/requests/${await accept(gone)}`)).text).toContain(gone);
});

test('the latest requests are listed with counts, and filtered by key, array and status', async () => {
  const applied = await recordApplied(scene.key);
  const { requestId } = await scene.refusedIn(scene.shop, { keyId: uuidv7() });
  const listed = async (query: string) => {
    const { status, text } = await page(scene.operator, `/requests?workspace=${scene.shop}&${query}`);
    expect(status).toBe(200);
    return [applied, requestId].filter((id) => text.includes(`/requests/${id}`));
  };
  expect(await listed('')).toEqual([applied, requestId]);
  expect(await listed(`key=${scene.key}`)).toEqual([applied]);
  expect(await listed('array=purchases')).toEqual([]);
  expect(await listed('state=applied')).toEqual([applied]);
  expect(await listed('state=refused')).toEqual([requestId]);
  expect(await listed('state=failed')).toEqual([]);
  await scene.letterIn(scene.shop, { requestId: applied });
  expect(await listed('state=failed')).toEqual([applied]);
  expect(await listed(`before=${applied}`)).toEqual([]);
  expect((await page(scene.operator, '/requests?state=no')).status).toBe(400);
});
