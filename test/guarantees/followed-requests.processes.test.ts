import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { errorBodyOf } from '../../src/errors.ts';
import { findTrace } from '../../src/jobs/traces.ts';
import { findTraces } from '../../src/store/ledger.ts';
import { type PenstockOn, penstockOn } from '../admin/penstock.ts';
import { type ApiRequest, send } from '../setup/api.ts';
import { liftLimits } from '../setup/examples.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { makeTriggers, refuseEvents } from '../workers/batch.ts';
import { eitherBackend, type Fleet, startFleet } from './fleet.ts';

const time = '2026-01-02T03:04:05Z';
const UNKNOWN = { status: 404, body: errorBodyOf('unknownRequest') };

describe.each(eitherBackend)('G6: status of an accepted request; queue on %s, four lanes', (backend) => {
  let fleet: Fleet;
  let on: PenstockOn;
  beforeAll(async () => {
    // The workers start later, so that accepted requests wait until then.
    fleet = await startFleet(backend, { edges: 2, workers: 0, env: { LANES: '4' } });
    on = penstockOn(fleet.env.DATABASE_URL!, fleet.env);
    await liftLimits(fleet.pool, fleet.workspace.id);
    await refuseEvents(fleet.pool, 'poison');
  });
  afterAll(() => fleet?.stop());

  const track = async (json: ApiRequest['json'], request: ApiRequest = {}): Promise<string> => {
    const answer = await send(fleet.edges[0]!.port, {
      path: '/users/track',
      key: fleet.workspace.key,
      json,
      ...request,
    });
    expect(answer).toMatchObject({ status: 201 });
    return answer.headers.get('x-request-id')!;
  };
  const follow = async (id: string, key = fleet.workspace.key, edge = 1) => {
    const { status, body } = await send(fleet.edges[edge]!.port, {
      method: 'GET',
      path: `/requests/${id}`,
      key,
    });
    return { status, body };
  };
  const become = (id: string, wanted: string) =>
    waitUntil(
      async () => {
        const { body } = await follow(id);
        return body.status === wanted && body;
      },
      { what: `the request to be ${wanted}` },
    );

  /** Returns the keys that the ledger names for a request, each once. */
  const sendersOf = async (id: string) => {
    const all = ['0', 'f'].map((digit) => `${digit.repeat(8)}-0000-0000-0000-000000000000`) as [
      string,
      string,
    ];
    const result = await findTraces(fleet.pool, id, all);
    return [...new Set(result.map(({ traces }) => findTrace(traces, id, fleet.workspace.id)?.key_id))];
  };
  const idsOfKeys = async () =>
    (
      await fleet.pool.query(
        "select id from api_keys where workspace_id = $1 and name = 'test' order by id limit 1",
        [fleet.workspace.id],
      )
    ).rows.map(({ id }) => id);

  /** One request for all lanes, one of which waits at a fence. */
  const everyone = Array.from({ length: 75 }, (_, user) => ({
    external_id: `user-${user}`,
    name: 'seen',
    time,
  }));
  const wide = { events: everyone, attributes: [{ external_id: 'ada', email: 'ada@example.com' }] };
  const locations = (status: string) => [
    { input_array: 'attributes', index: 0, status },
    ...everyone.map((_, index) => ({ input_array: 'events', index, status })),
  ];
  const byPlace = (objects: { input_array: string; index: number }[]) =>
    [...objects].sort(
      (one, other) => one.input_array.localeCompare(other.input_array) || one.index - other.index,
    );

  let waiting: string;
  let partly: string;
  let repeated: string;

  test('lists each object as accepted before a worker applies it, without rejected objects', async () => {
    waiting = await track(wide);
    const { status, body } = await follow(waiting);
    expect({ status, ...body, objects: byPlace(body.objects) }).toEqual({
      status: 'accepted',
      request_id: waiting,
      accepted_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      objects: locations('accepted'),
      message: 'success',
    });
    expect(status).toBe(200);
    expect(Math.abs(Date.parse(body.accepted_at) - Date.now())).toBeLessThan(60_000);

    partly = await track({
      events: [
        { external_id: 'grace', name: 'seen', time },
        { external_id: 'grace' },
        { external_id: 'grace', name: 'poison', time },
      ],
    });
    expect((await follow(partly)).body.objects).toEqual([
      { input_array: 'events', index: 0, status: 'accepted' },
      { input_array: 'events', index: 2, status: 'accepted' },
    ]);
  });

  test('lists rejected objects by position, reason and field, next to accepted ones', async () => {
    const { objects, rejected } = await waitUntil(
      async () => {
        const { body } = await follow(partly);
        return body.rejected && body;
      },
      { what: 'the refused object to be stored' },
    );
    expect(objects).toHaveLength(2);
    expect(rejected).toEqual([{ input_array: 'events', index: 1, reason: 'required', field: 'name' }]);
    expect((await follow(waiting)).body).not.toHaveProperty('rejected');
  });

  test('counts accepted objects as unknown if the lanes have lost them, next to rejected ones', async () => {
    const lost = uuidv7();
    // What web stores of the request `partly`, under an id that the lanes do not have.
    await fleet.pool.query(
      `insert into refused_requests (workspace_id, request_id, api_key_id, operation, accepted, rejected, objects)
       select workspace_id, $2, api_key_id, operation, accepted, rejected, objects
       from refused_requests where request_id = $1`,
      [partly, lost],
    );
    expect((await follow(lost)).body).toEqual({
      ...{ status: 'partially_applied', request_id: lost, accepted_at: expect.any(String), objects: [] },
      unknown: 2,
      rejected: [{ input_array: 'events', index: 1, reason: 'required', field: 'name' }],
      message: 'success',
    });
  });

  test('is rejected for a request whose objects were all rejected', async () => {
    const { status, headers } = await send(fleet.edges[0]!.port, {
      ...{ path: '/users/track', key: fleet.workspace.key },
      json: { attributes: [{ email: 'none' }], events: [{ external_id: 'ada', name: 'seen', time: 'soon' }] },
    });
    expect(status).toBe(400);
    const id = headers.get('x-request-id')!;
    await waitUntil(async () => (await follow(id)).status === 200, {
      what: 'the refused request to be stored',
    });
    expect((await follow(id)).body).toEqual({
      ...{ status: 'rejected', request_id: id, accepted_at: expect.any(String), objects: [] },
      rejected: [
        { input_array: 'attributes', index: 0, reason: 'invalid', field: 'email' },
        { input_array: 'events', index: 0, reason: 'invalid', field: 'time' },
      ],
      message: 'success',
    });
  });

  test("is the first request's status for a repeated request", async () => {
    const request = { headers: { 'Idempotency-Key': uuidv7() } };
    const json = { events: [{ external_id: 'alan', name: 'seen', time }] };
    repeated = await track(json, request);
    expect(await track(json, request)).toBe(repeated);
    expect((await follow(repeated)).body).toMatchObject({ status: 'accepted', objects: [{ index: 0 }] });
  });

  test("is 404 for another workspace's key and for malformed and unknown ids", async () => {
    const other = await createWorkspace(fleet.pool, 'other');
    expect(await follow(waiting, other.key)).toEqual(UNKNOWN);
    for (const id of [uuidv7(), 'nonsense', `${waiting}0`, '00000000-0000-4000-8000-000000000000'])
      expect(await follow(id)).toEqual(UNKNOWN);
    expect(await follow(waiting.toUpperCase())).toMatchObject({ status: 200 });
  });

  test('is 404 for a request that is answered directly from the store', async () => {
    const { headers } = await send(fleet.edges[0]!.port, {
      path: '/users/export/ids',
      key: fleet.workspace.key,
      json: { external_ids: ['ada'] },
    });
    expect(await follow(headers.get('x-request-id')!)).toEqual(UNKNOWN);
  });

  test('is open to every key of the workspace, whatever its permissions', async () => {
    const { id } = fleet.workspace;
    const { key } = await createWorkspace(fleet.pool, 'to be given away', []);
    await fleet.pool.query(
      "update api_keys set workspace_id = $1 where workspace_id = (select id from workspaces where name = 'to be given away')",
      [id],
    );
    expect(await follow(waiting, key)).toMatchObject({ status: 200 });
  });

  test('changes to applied, to failed with its reason, and to applied after a replay', async () => {
    await fleet.startWorker();
    await fleet.startWorker();
    const applied = await become(waiting, 'applied');
    expect(byPlace(applied.objects)).toEqual(locations('applied'));
    await become(repeated, 'applied');
    expect(await sendersOf(waiting)).toEqual(await idsOfKeys());

    const failed = await become(partly, 'partially_applied');
    expect(failed.objects).toEqual([
      { input_array: 'events', index: 0, status: 'applied' },
      { input_array: 'events', index: 2, status: 'failed', reason: 'poison is refused' },
    ]);

    await makeTriggers(fleet.pool, ['drop trigger refuse on events']);
    expect(await on.run('dead-letters replay --all')).toMatchObject({ code: 0 });
    const replayed = await become(partly, 'applied');
    expect(replayed.objects).toEqual([
      { input_array: 'events', index: 0, status: 'applied' },
      { input_array: 'events', index: 2, status: 'applied' },
    ]);
  });

  test('lists a rename that the workers rejected, with its reason', async () => {
    const { status, headers } = await send(fleet.edges[0]!.port, {
      ...{ path: '/users/external_ids/rename', key: fleet.workspace.key },
      json: { external_id_renames: [{ current_external_id: 'nobody', new_external_id: 'somebody' }] },
    });
    const id = headers.get('x-request-id')!;
    // Without an outcome in time, the answer would be 202 without rejections.
    expect(status).toBe(201);
    const { rejected } = await waitUntil(
      async () => {
        const { body } = await follow(id);
        return body.rejected && body;
      },
      { what: 'the refused rename to be stored' },
    );
    expect(rejected).toEqual([{ input_array: 'external_id_renames', index: 0, reason: 'unknown_user' }]);
  });

  test('lists every kind of object under the name of its array', async () => {
    const post = async (path: string, json: ApiRequest['json']) => {
      const { status, headers, body } = await send(fleet.edges[0]!.port, {
        path,
        key: fleet.workspace.key,
        json,
      });
      expect({ status, body }).toMatchObject({ body: { message: 'success' } });
      return headers.get('x-request-id')!;
    };
    const alias = { alias_label: 'device', alias_name: 'tablet' };
    for (const [path, json, input_array] of [
      ['/users/alias/new', { user_aliases: [alias] }, 'user_aliases'],
      [
        '/users/identify',
        { aliases_to_identify: [{ external_id: 'x', user_alias: alias }] },
        'aliases_to_identify',
      ],
      ['/users/delete', { user_aliases: [alias] }, 'user_aliases'],
      ['/email/status', { email: ['x@example.com'], subscription_state: 'subscribed' }, 'email'],
    ] as const) {
      const { objects } = await become(await post(path, json as unknown as ApiRequest['json']), 'applied');
      expect(objects).toEqual([{ input_array, index: 0, status: 'applied' }]);
    }
  });

  test('marks applied objects without details as unknown', async () => {
    const { rowCount } = await fleet.pool.query(
      `update ledger set requests = null where envelope_id in (
         select envelope_id from ledger where position($1::bytea in requests) > 0 limit 1)`,
      [Buffer.from(waiting.replaceAll('-', ''), 'hex')],
    );
    expect(rowCount).toBe(1);
    const { body } = await follow(waiting);
    expect(body.status).toBe('partially_applied');
    expect(body.objects.length + body.unknown).toBe(76);
  });
});
