import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { AcceptedObject, Envelope } from '../../src/jobs/envelope.ts';
import { encodeTraces, userBytes } from '../../src/jobs/traces.ts';
import { type Identifier, toProfileId } from '../../src/profile/identifier.ts';
import { pack } from '../../src/queue/pack.ts';
import { readLatestRequests } from '../../src/store/latest-requests.ts';
import { addRefusedOfUsers, dayOf, nameOf } from '../../src/store/refused-of-users.ts';
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

/** Records a request with one event of a user as a worker does when it has applied it. */
async function recordApplied(
  key_id: string,
  {
    identifier = { external_id: 'ada' },
    requestId = uuidv7(),
  }: { identifier?: Identifier; requestId?: string } = {},
): Promise<string> {
  const request = {
    ...{ request_id: requestId, workspace_id: scene.shop, accepted_at: new Date().toISOString(), key_id },
  };
  const event = { kind: 'events', id: uuidv7(), index: 0, identifier };
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

describe('the requests of a user', () => {
  const listed = async (query: string, visitor = scene.operator) => {
    const { status, text } = await page(visitor, `/requests?workspace=${scene.shop}&${query}`);
    return { status, ids: [...text.matchAll(/\/requests\/([\da-f-]{36})/g)].map(([, id]) => id), text };
  };

  test('are found by each identifier of the user, also if the request named another one', async () => {
    const byId = await recordApplied(scene.key, { identifier: { external_id: 'user-1' } });
    const byEmail = await recordApplied(scene.key, { identifier: { email: 'ada@gmail.com' } });
    const ofGrace = await recordApplied(scene.key, { identifier: { external_id: 'grace' } });
    for (const user of ['user-1', 'ada@gmail.com', scene.user]) {
      const { status, ids } = await listed(`user=${encodeURIComponent(user)}`);
      expect(status).toBe(200);
      expect(ids).toEqual([byEmail, byId]);
      expect(ids).not.toContain(ofGrace);
    }
    expect((await listed('user=user-1&state=refused')).ids).toEqual([]);
    expect((await listed(`user=user-1&before=${byEmail}`)).ids).toEqual([byId]);
  });

  test('include requests with refused objects of the user, with the counts of the whole request', async () => {
    const { requestId } = await scene.refusedIn(scene.shop, {});
    const name = nameOf(scene.shop, { external_id: 'nobody' });
    const refused = { requestId, operation: 'users.track', inputArray: 'events', index: 3 };
    await addRefusedOfUsers(scene.installation.database.pool, [
      {
        ...{ workspaceId: scene.shop, name, day: dayOf(requestId) },
        objects: [{ ...refused, reason: 'required', field: 'name' }],
      },
    ]);
    const { ids, text } = await listed('user=nobody');
    expect(ids).toEqual([requestId]);
    expect(text).toContain('users.track');
  });

  test('before a merge include requests with the former external id of the merged user', async () => {
    const kept = await scene.createUser(scene.shop, 'kept');
    const early = await recordApplied(scene.key, { identifier: { external_id: 'merged' } });
    await scene.query(
      `insert into merged_profiles (workspace_id, profile_id, kept_id, merged_at, external_id)
       values ($1, $2, $3, $4, 'merged')`,
      ...[scene.shop, uuidv7(), kept, new Date(Date.now() + 1000)],
    );
    const late = await recordApplied(scene.key, {
      ...{ identifier: { external_id: 'merged' }, requestId: uuidv7({ msecs: Date.now() + 5000 }) },
    });
    const { ids } = await listed('user=kept');
    expect(ids).toContain(early);
    expect(ids).not.toContain(late);
  });

  test('are found among many requests of other users and workspaces', async () => {
    const wanted = await recordApplied(scene.key, { identifier: { external_id: 'rare' } });
    await scene.query(
      `insert into ledger (envelope_id, applied_at, requests)
       select uuid_v7_floor(now() + make_interval(secs => number / 1000.0)), now(), ledger.requests
       from generate_series(1, 3000) as numbers (number)
       cross join lateral (select requests from ledger where position($1::bytea in requests) = 0 limit 1) as ledger`,
      userBytes(scene.shop, { external_id: 'rare' }),
    );
    // A page reads for a limited time, and the next one continues.
    let found: (string | undefined)[] = [];
    let path: string | undefined = 'user=rare';
    for (let turn = 0; path !== undefined && turn < 40; turn++) {
      const { ids, text } = await listed(path);
      found = [...found, ...ids];
      const [, before] = /rel="next" href="[^"]*before=([\da-f-]{36})/.exec(text) ?? [];
      path = before && `user=rare&before=${before}`;
    }
    expect(found).toEqual([wanted]);
  });

  test('need the permission for users, and view_pii to be found by an address', async () => {
    await recordApplied(scene.key, { identifier: { email: 'ada@gmail.com' } });
    const arrive = async (...permissions: string[]) => {
      const appGroups = [{ workspace: scene.shop, permissions, teams: [] }];
      return (await scene.people.arrive([], { appGroups })).visitor;
    };
    expect((await listed('user=user-1', await arrive('dev_console'))).status).toBe(403);
    const masked = await arrive('dev_console', 'view_user_profile');
    expect((await listed('user=user-1', masked)).ids).not.toEqual([]);
    const { ids, text } = await listed('user=ada%40gmail.com', masked);
    expect(ids).toEqual([]);
    expect(text).toContain('Without the permission “view_pii”');
  });

  test('are read up to the given position, also if the requests of the minute after it take too long', async () => {
    const wanted = await recordApplied(scene.key, { identifier: { external_id: 'earlier' } });
    const before = uuidv7();
    await scene.query(
      `insert into ledger (envelope_id, applied_at, requests)
       select uuid_v7_floor(now() + make_interval(secs => 10 + number / 1000.0)), now(), ledger.requests
       from generate_series(1, 1000) as numbers (number)
       cross join lateral (select requests from ledger where position($1::bytea in requests) = 0 limit 1) as ledger`,
      userBytes(scene.shop, { external_id: 'earlier' }),
    );
    const { requests } = await readLatestRequests(scene.installation.database.pool, {
      ...{ workspaceId: scene.shop, before, limit: 10, readMs: 0, isWanted: () => true },
      user: [{ identifier: { external_id: 'earlier' } }],
    });
    expect(requests.map(({ id }) => id)).toEqual([wanted]);
  });

  test('are linked from the page of the user, and from each event with its request first', async () => {
    const requestId = await recordApplied(scene.key, { identifier: { external_id: 'user-1' } });
    const eventId = uuidv7();
    await recordApplied(scene.key, { identifier: { external_id: 'user-1' } });
    await scene.query(
      "insert into events values ($1, $2, $3, 'linked', now(), 'app', '{}')",
      ...[scene.shop, eventId, toProfileId(scene.user)],
    );
    const link = `/requests?workspace=${scene.shop}&user=${scene.user}&before=${eventId}`;
    const { text } = await page(scene.operator, `/users/${scene.user}?workspace=${scene.shop}`);
    expect(text).toContain(`href="/requests?workspace=${scene.shop}&amp;user=${scene.user}"`);
    expect(text).toContain(`href="${link.replaceAll('&', '&amp;')}"`);
    expect((await listed(`user=${scene.user}&before=${eventId}`)).ids[0]).toBe(requestId);
  });
});
