import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { createEdgeMetrics } from '../../src/edge/metrics.ts';
import { RefusedObjects, type RefusedObjectsOf, refusalLimits } from '../../src/edge/refused-objects.ts';
import { newId } from '../../src/platform/ids.ts';
import type { Database, Pool } from '../../src/store/database.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import {
  countRefused,
  findRefusedRequest,
  forgetRefusedObjects,
  listRefusedHours,
  sumRefusedObjects,
} from '../../src/store/refused-objects.ts';
import { createStore, silent } from '../workers/batch.ts';

let database: Database;
let pool: Pool;
beforeAll(async () => {
  database = openDatabase((await createStore()).url, 4);
  ({ pool } = database);
});
afterAll(() => database.stop());

/** A new workspace for each test. */
let workspaceId: string;
const keyId = newId();
const HOUR = 3_600_000;
const hourAgo = () => new Date(Date.now() - HOUR);
beforeEach(() => {
  workspaceId = newId();
});

type Limits = Partial<typeof refusalLimits>;

/** Opens a collector with the settings of web. `value` reads one of its counters. */
function open(limits: Limits = {}, store = pool) {
  const metrics = createEdgeMetrics();
  const refused = new RefusedObjects(store, {
    ...{ log: silent, metrics },
    limits: { ...refusalLimits, ...limits },
  });
  const value = async (name: string, reason?: string) => {
    const { values } = await metrics.registry.getSingleMetric(name)!.get();
    return values.find(({ labels }) => reason === undefined || labels.reason === reason)!.value;
  };
  return { refused, value };
}

const required = (index: number, field = 'name') => ({
  ...{ type: `'${field}' is required`, input_array: 'events', index, reason: 'required' as const, field },
});

const request = (change: Partial<RefusedObjectsOf> = {}): RefusedObjectsOf => ({
  ...{ requestId: newId(), workspaceId, keyId, operation: 'users.track' },
  ...{ body: { events: [{ external_id: 'ada' }] }, accepted: 0, rejected: [required(0)] },
  ...change,
});

const causesOf = async (workspace = workspaceId) =>
  (await sumRefusedObjects(pool, { workspaceIds: [workspace], since: hourAgo() })).causes;

test('refused objects are counted by cause, with the last request and one masked sample', async () => {
  const { refused, value } = open();
  const first = request({ rejected: [required(0), required(1), required(0, 'time')] });
  const last = request();
  refused.note(first);
  await refused.write();
  refused.note(last);
  await refused.stop();
  const cause = { workspaceId, keyId, reason: 'required', operation: 'users.track', inputArray: 'events' };
  const name = { ...cause, field: 'name', objects: 3, lastRequestId: last.requestId };
  const time = { ...cause, field: 'time', objects: 1, lastRequestId: first.requestId };
  expect(await causesOf()).toEqual([name, time]);
  expect(await listRefusedHours(database, name)).toEqual([
    {
      hour: expect.any(Date),
      ...{ objects: 3, lastRequestId: last.requestId, sampleRequestId: first.requestId },
      sample: { external_id: '•••' },
    },
  ]);
  expect(await value('penstock_objects_rejected_reasons_total', 'required')).toBe(4);
  expect(await value('penstock_refused_objects_dropped_total')).toBe(0);
});

test('two web processes that refuse objects for one cause share its row', async () => {
  const webs = [open().refused, open().refused];
  await Promise.all(
    webs.map(async (web) => {
      for (let round = 0; round < 20; round++) {
        web.note(request());
        await web.write();
      }
    }),
  );
  await Promise.all(webs.map((web) => web.stop()));
  expect(await causesOf()).toMatchObject([{ objects: 40 }]);
});

test('the first 300 refused objects of a request are found by its id', async () => {
  const { refused } = open();
  const rejected = Array.from({ length: 400 }, (_, index) => required(index));
  const large = request({ rejected });
  refused.note(large);
  await refused.stop();
  const refusedRequest = await findRefusedRequest(database, workspaceId, large.requestId);
  expect(refusedRequest).toMatchObject({
    rejected: 400,
    operation: 'users.track',
    keyId,
    objects: { length: 300 },
  });
  expect(refusedRequest!.objects[7]).toEqual({
    inputArray: 'events',
    index: 7,
    reason: 'required',
    field: 'name',
  });
  expect(await findRefusedRequest(database, newId(), large.requestId)).toBeUndefined();
});

test('causes above the limit of a reason and hour share one group, and all are counted', async () => {
  const { refused } = open({ groupsOfReason: 3 });
  for (let round = 0; round < 2; round++) {
    const rejected = Array.from({ length: 10 }, (_, index) => required(index, `field${index}`));
    refused.note(request({ rejected }));
    await refused.write();
  }
  await refused.stop();
  const causes = await causesOf();
  expect(causes.map(({ field, objects }) => [field, objects])).toEqual([
    ['', 14],
    ['field0', 2],
    ['field1', 2],
    ['field2', 2],
  ]);
  expect(causes[0]).toMatchObject({ operation: '', inputArray: '', reason: 'required' });
});

test('requests above the limit of an hour are not kept, except those that open a cause', async () => {
  const { refused } = open({ requestsOfHour: 2 });
  const requests = Array.from({ length: 4 }, () => request());
  const opening = request({ rejected: [required(0, 'time')] });
  for (const one of [...requests, opening]) refused.note(one);
  await refused.stop();
  const kept = await Promise.all(
    [...requests, opening].map(({ requestId }) => findRefusedRequest(database, workspaceId, requestId)),
  );
  expect(kept.map((one) => one !== undefined)).toEqual([true, true, false, false, true]);
});

test('refused objects above the limit of memory are dropped and counted', async () => {
  const { refused, value } = open({ pendingGroups: 2 });
  const rejected = ['one', 'two', 'three', 'four'].map((field, index) => required(index, field));
  refused.note(request({ rejected }));
  expect(await value('penstock_refused_objects_dropped_total')).toBe(2);
  await refused.stop();
  expect(await causesOf()).toHaveLength(2);
});

test('refused objects that Postgres did not store are written later, once', async () => {
  let isAway = true;
  const flaky = {
    query: (...given: Parameters<Pool['query']>) =>
      isAway ? Promise.reject(new Error('Connection terminated')) : pool.query(...given),
  } as unknown as Pool;
  const { refused, value } = open({}, flaky);
  const requests = [request(), request()];
  for (const one of requests) {
    refused.note(one);
    await refused.write();
  }
  isAway = false;
  await refused.write();
  await refused.stop();
  expect(await causesOf()).toMatchObject([{ objects: 2, lastRequestId: requests[1]!.requestId }]);
  for (const { requestId } of requests)
    expect(await findRefusedRequest(database, workspaceId, requestId)).toBeDefined();
  expect(await value('penstock_refused_objects_dropped_total')).toBe(0);
});

test('after 60 failed writes their refused objects are dropped and counted', async () => {
  const away = { query: () => Promise.reject(new Error('Connection terminated')) } as unknown as Pool;
  const { refused, value } = open({}, away);
  refused.note(request({ rejected: [required(0), required(1)] }));
  for (let attempt = 0; attempt < 60; attempt++) await refused.write();
  expect(await value('penstock_refused_objects_dropped_total')).toBe(2);
  await refused.stop();
});

test('values of refused objects are not stored, so deleting a user leaves no trace of them', async () => {
  const planted = `planted-${uuidv7()}`;
  const email = `${planted}@example.com`;
  const { refused } = open();
  const object = { external_id: planted, email, [email]: planted, list: [{ name: planted }], time: planted };
  const texts = [
    "'time' is not valid: it must be a time in ISO 8601",
    `'${email}' is not valid: it must be a string`,
    `the external_id '${planted}' is not deprecated: a user goes by it`,
    `'subscription_groups' is not valid: no subscription group has the id ${planted}`,
    `no text of a release, with ${planted} in it`,
  ];
  const fields = ['time', email, '', 'subscription_groups', ''];
  const rejected = texts.map((type, index) => ({
    ...{ type, input_array: 'events', index },
    ...{ reason: 'invalid' as const, field: fields[index]! },
  }));
  const sent = request({ body: { events: texts.map(() => object) }, rejected });
  refused.note(sent);
  await refused.stop();
  expect(await causesOf()).toHaveLength(4);
  for (const table of ['refused_objects', 'refused_requests']) {
    const { rows } = await pool.query(`select ${table}::text as row from ${table} where workspace_id = $1`, [
      workspaceId,
    ]);
    expect(rows.length).toBeGreaterThan(0);
    expect(rows.filter(({ row }) => row.includes(planted))).toEqual([]);
  }
});

test('refused objects of the last two hours are counted for the whole installation', async () => {
  const before = await countRefused(pool);
  const { refused } = open();
  refused.note(request());
  await refused.stop();
  const { objects, seconds } = await countRefused(pool);
  expect(objects).toBe(before.objects + 1);
  expect(seconds).toBeGreaterThanOrEqual(3600);
  expect(seconds).toBeLessThan(7200);
});

test('refused objects and their requests are removed after 30 days, and no sooner', async () => {
  const { refused } = open();
  const daysAgo = (days: number) => uuidv7({ msecs: Date.now() - days * 24 * HOUR });
  const requests = [45, 31, 29, 0].map((days) => request({ requestId: daysAgo(days) }));
  for (const one of requests) refused.note(one);
  await refused.stop();
  await forgetRefusedObjects(pool);
  const kept = await Promise.all(
    requests.map(({ requestId }) => findRefusedRequest(database, workspaceId, requestId)),
  );
  expect(kept.map((one) => one !== undefined)).toEqual([false, false, true, true]);
  const { rows } = await pool.query('select hour from refused_objects where workspace_id = $1', [
    workspaceId,
  ]);
  expect(rows).toHaveLength(2);
});
