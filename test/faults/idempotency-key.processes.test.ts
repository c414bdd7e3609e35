import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { allOperations } from '../../src/operations/index.ts';
import { eitherBackend, type Fleet, startFleet } from '../guarantees/fleet.ts';
import { createAccess } from '../setup/access.ts';
import { send } from '../setup/api.ts';
import { liftLimits } from '../setup/examples.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { askAtOnce, call, effectsOn, newKey, ONCE, saidBy, tracked } from './idempotency-scene.ts';

const REUSED =
  'This Idempotency-Key was used for a different request in the last 24 hours. Use a new key, or send the original request again.';

describe.each(eitherBackend)('one Idempotency-Key, two web processes, the queue in %s', (backend) => {
  let fleet: Fleet;
  beforeAll(async () => {
    fleet = await startFleet(backend, { edges: 2, workers: 2, env: { LOG_LEVEL: 'info' } });
    await liftLimits(fleet.pool, fleet.workspace.id);
  });
  afterAll(() => fleet?.stop());

  test('50 simultaneous requests and later ones: one effect, equal answers; another body fails', async () => {
    const key = newKey();
    const json = tracked('ada');
    const answers = (await askAtOnce(fleet, 50, key, { json })).map(saidBy);
    expect(answers[0]).toMatchObject({
      status: 201,
      body: { message: 'success', attributes_processed: 1, events_processed: 1, purchases_processed: 1 },
    });
    for (const answer of answers) expect(answer).toEqual(answers[0]);
    expect((await effectsOn(fleet, ['ada'])).get('ada')).toEqual(ONCE);

    for (let edge = 0; edge < 4; edge++) {
      expect(saidBy(await call(fleet, key, { json }, edge))).toEqual(answers[0]);
      const other = await call(fleet, key, { json: tracked('ada-too') }, edge);
      expect(other).toMatchObject({ status: 422, body: { message: REUSED } });
    }
    const effects = await effectsOn(fleet, ['ada', 'ada-too']);
    expect(effects.get('ada')).toEqual(ONCE);
    expect(effects.get('ada-too')).toEqual({ points: null, events: 0, purchases: 0 });
  });

  test('order of members, white space and compression of the body make no difference', async () => {
    const key = newKey();
    const first = await call(fleet, key, { json: { events: [], ...tracked('grace') } });
    expect(first.status).toBe(201);
    const { attributes, events, purchases } = tracked('grace');
    const raw = JSON.stringify({ purchases, events, attributes }, null, 3);
    expect(saidBy(await call(fleet, key, { raw }, 1))).toEqual(saidBy(first));
    const other = JSON.stringify({ purchases, events, attributes: [] });
    expect(await call(fleet, key, { raw: other }, 1)).toMatchObject({ status: 422 });
    expect((await effectsOn(fleet, ['grace'])).get('grace')).toEqual(ONCE);
  });

  test('two different bodies at the same time: one takes effect, the other is rejected', async () => {
    const key = newKey();
    const users = ['left', 'right'];
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        call(fleet, key, { json: tracked(users[index % 2]!) }, index >> 1),
      ),
    );
    const statuses = users.map((_, position) =>
      answers.filter((__, index) => index % 2 === position).map(({ status }) => status),
    );
    const winner = statuses[0]![0] === 201 ? 0 : 1;
    expect(new Set(statuses[winner])).toEqual(new Set([201]));
    expect(new Set(statuses[1 - winner])).toEqual(new Set([422]));
    const effects = await effectsOn(fleet, users);
    expect(effects.get(users[winner]!)).toEqual(ONCE);
    expect(effects.get(users[1 - winner]!)).toMatchObject({ events: 0, purchases: 0 });
  });

  test("the header's name in any case, and the key in quotes, are the same key", async () => {
    const key = newKey();
    const json = tracked('quoted');
    const sendAs = (headers: Record<string, string>) =>
      send(fleet.edges[0]!.port, { path: '/users/track', key: fleet.workspace.key, json, headers });
    const first = await sendAs({ 'idempotency-key': key });
    for (const headers of [
      { 'IDEMPOTENCY-KEY': key },
      { 'Idempotency-key': `"${key}"` },
      { 'Idempotency-Key': ` ${key} ` },
    ]) {
      expect(saidBy(await sendAs(headers as Record<string, string>))).toEqual(saidBy(first));
    }
    expect((await effectsOn(fleet, ['quoted'])).get('quoted')).toEqual(ONCE);
  });

  test('another key, another operation and another workspace are another request', async () => {
    const key = newKey();
    const json = tracked('many');
    const other = await createWorkspace(fleet.pool, `other-${backend}`);
    const requestIds = new Set<string | null>();
    for (const { status, headers } of [
      await call(fleet, key, { json }),
      await call(fleet, newKey(), { json }),
      await call(fleet, key, { json, key: other.key }),
      await call(fleet, key, { path: '/users/delete', json: { external_ids: ['nobody'] } }),
    ]) {
      expect(status).toBe(201);
      requestIds.add(headers.get('x-request-id'));
    }
    expect(requestIds.size).toBe(4);
  });

  test.each(['', ' ', 'two words', 'ключ', 'x'.repeat(256), '""', 'tab\there'])(
    'an invalid key is rejected with 400, naming the header: %j',
    async (key) => {
      // Characters outside of Latin-1 cannot be sent in a header; their UTF-8 bytes can.
      const sent = Buffer.from(key, 'utf8').toString('latin1');
      const answer = await call(fleet, sent, { json: tracked('nobody') });
      expect(answer).toMatchObject({
        status: 400,
        body: { message: "'Idempotency-Key' is not valid: it must be 1 to 255 visible ASCII characters" },
      });
    },
  );

  test('a rejected request is not stored: its key is free for another one', async () => {
    const key = newKey();
    const bad = { events: [{ external_id: 'mended' }] };
    expect((await askAtOnce(fleet, 6, key, { json: bad })).map(({ status }) => status)).toEqual(
      Array(6).fill(400),
    );
    expect(await call(fleet, key, { json: bad }, 1)).toMatchObject({ status: 400 });
    expect(await call(fleet, key, { json: tracked('mended') }, 1)).toMatchObject({ status: 201 });
    expect(await call(fleet, key, { json: bad })).toMatchObject({ status: 422 });
    expect((await effectsOn(fleet, ['mended'])).get('mended')).toEqual(ONCE);
  });

  test('a repeated request counts towards its rate limit', async () => {
    const limited = await createWorkspace(fleet.pool, `limited-${backend}`);
    await fleet.pool.query("insert into rate_limits values ($1, 'users.track', 2, 3600)", [limited.id]);
    const key = newKey();
    const again = async () => (await call(fleet, key, { json: tracked('limited'), key: limited.key })).status;
    expect([await again(), await again(), await again()]).toEqual([201, 201, 429]);
  });

  test('an answer that waits for the workers is the same for all requests', async () => {
    await call(fleet, newKey(), { json: { attributes: [{ external_id: 'old-name', points: 1 }] } });
    const key = newKey();
    const renames = [
      { current_external_id: 'old-name', new_external_id: 'new-name' },
      { current_external_id: 'nobody-has-it', new_external_id: 'nobody' },
    ];
    const request = { path: '/users/external_ids/rename', json: { external_id_renames: renames } };
    const answers = (await askAtOnce(fleet, 20, key, request)).map(saidBy);
    expect(answers[0]!.status).toBe(201);
    expect(answers[0]!.body.rename_errors).toHaveLength(1);
    for (const answer of answers) expect(answer).toEqual(answers[0]);
    expect(saidBy(await call(fleet, key, request, 1))).toEqual(answers[0]);
  });

  test('50 simultaneous requests create one account, and one preference center', async () => {
    const access = createAccess(fleet.pool);
    for (const id of ['scim.users.create', 'preference_center.create']) {
      const operation = allOperations('service_id').find((one) => one.id === id)!;
      const admitted = await access.admit(operation, fleet.workspace);
      const example = await access.example(operation, fleet.workspace);
      const request = { ...example, ...admitted, headers: { ...admitted.headers } };
      const key = newKey();
      const answers = (await askAtOnce(fleet, 50, key, request)).map(saidBy);
      expect(answers[0]).toMatchObject({ status: 201 });
      for (const answer of answers) expect(answer).toEqual(answers[0]);
      const again = await call(fleet, newKey(), request);
      expect([400, 409]).toContain(again.status);
    }
  });

  test('a request that only reads is executed again, and rejected with another body', async () => {
    const key = newKey();
    const request = { path: '/users/export/ids', json: { external_ids: ['reader'] } };
    expect((await call(fleet, key, request)).body.users).toEqual([]);
    await call(fleet, newKey(), { json: tracked('reader') });
    await effectsOn(fleet, ['reader']);
    expect((await call(fleet, key, request, 1)).body.users).toHaveLength(1);
    const other = { ...request, json: { external_ids: ['writer'] } };
    expect(await call(fleet, key, other)).toMatchObject({ status: 422, body: { message: REUSED } });
  });

  test('the header is ignored for other methods', async () => {
    const list = (key: string) =>
      call(fleet, key, { method: 'GET', path: '/preference_center/v1/list', headers: {} });
    expect((await list('two words')).status).toBe(200);
  });

  test('a key expires after 24 hours', async () => {
    const key = newKey();
    const first = await call(fleet, key, { json: tracked('yesterday') });
    await fleet.pool.query(
      "update idempotency_keys set created_at = now() - interval '24 hours' where request_id = $1",
      [first.headers.get('x-request-id')],
    );
    const second = await call(fleet, key, { json: tracked('yesterday') });
    expect(second.headers.get('x-request-id')).not.toBe(first.headers.get('x-request-id'));
    expect((await effectsOn(fleet, ['yesterday'])).get('yesterday')).toEqual({
      points: 2,
      events: 2,
      purchases: 2,
    });
  });

  test('the log distinguishes the first request from its repetitions', async () => {
    const key = newKey();
    const ids: (string | null)[] = [];
    for (let edge = 0; edge < 2; edge++) {
      const { headers } = await call(fleet, key, { json: tracked('logged') }, edge);
      ids.push(headers.get('x-request-id'));
    }
    expect(new Set(ids).size).toBe(1);
    await expect
      .poll(() => fleet.edges.flatMap(({ log }) => log).filter(({ repeats }) => repeats === ids[0]))
      .toEqual([expect.objectContaining({ msg: 'request', status: 201, accepted: 0 })]);
  });
});
