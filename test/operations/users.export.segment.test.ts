import { beforeEach, describe, expect, test } from 'vitest';
import { newId } from '../../src/platform/ids.ts';
import type { Json } from '../../src/profile/json.ts';
import { archiveSegment } from '../../src/store/segments.ts';
import { actor, createScene, exportOf } from '../export/segment-export-scene.ts';
import { waitUntil } from '../setup/fixtures.ts';

const scene = await createScene();
const { pool, workspaceId, readers, callbacks, segment, settings, send, shown, ended, working } = scene;
beforeEach(() => scene.begin());

describe('a request is rejected', () => {
  // "Note that a company may run at most one export per segment using this endpoint at a given time."
  test('while an export of the same segment is running, except for a repeat of the request', async () => {
    const config = settings();
    const requestId = newId();
    const { body } = await send(exportOf(readers), config, { requestId });
    expect((await send(exportOf(readers), config, { requestId })).body).toEqual(body);
    await expect(send(exportOf(readers), config)).rejects.toMatchObject({ status: 429 });
    const another = await segment(workspaceId, { all: [] });
    expect((await send(exportOf(another), config)).status).toBe(201);
    await pool.query(`update segment_exports set state = 'ready', due_at = null`);
    expect((await send(exportOf(readers), config)).status).toBe(201);
  });

  // "The number of concurrent segment exports a company can run at the endpoint level is capped at 100. Attempts that
  // surpass this limit will result in an error."
  test('while 100 exports of the workspace are not ready', async () => {
    await pool.query(
      `insert into segment_exports (workspace_id, id, segment_id, object_prefix, fields, output_format)
       select $1, gen_random_uuid(), gen_random_uuid(), '', '{}', 'zip' from generate_series(1, 100)`,
      [workspaceId],
    );
    await expect(send(exportOf(readers), settings())).rejects.toThrow('at most 100 exports');
  });

  // "1. The `fields_to_export` field in this API request is **required**. The option to default to all fields has been
  // removed."
  test.each<[Record<string, Json>, string]>([
    [{ segment_id: '' }, "'segment_id' is required"],
    [{ segment_id: 7 }, "'segment_id' is not valid: it must be a string"],
    [{ segment_id: 'nonsense' }, 'Invalid segment ID'],
    [{ segment_id: '019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f' }, 'Invalid segment ID'],
    [{ fields_to_export: null }, "'fields_to_export' is required"],
    [{ fields_to_export: [] }, "'fields_to_export' is required"],
    [{ fields_to_export: 'email' }, "'fields_to_export' is not valid"],
    [{ fields_to_export: ['shoe_size'] }, "'fields_to_export' names no field of a user"],
    [{ output_format: 'rar' }, "'output_format' is not valid: it must be 'zip' or 'gzip'"],
    [{ callback_endpoint: 'ftp://x' }, "'callback_endpoint' must be an URL with http:// or https://"],
    [{ custom_attributes_to_export: 'plan' }, 'it must be an array of at most 500 strings'],
  ])('with %j: %s', async (change, message) => {
    await expect(send({ ...exportOf(readers), ...change }, settings())).rejects.toThrow(message);
    expect(await shown()).toEqual([]);
  });
});

describe('an export ends', () => {
  test('as failed with its reason when the segment is archived, or after five failed attempts', async () => {
    const gone = await segment(workspaceId, { all: [] });
    await send(exportOf(gone), settings());
    await archiveSegment(scene.store.database, actor, { id: gone, workspaceId: workspaceId, name: '' });
    expect(await working(settings(), () => ended())).toMatchObject({
      ...{ state: 'failed', lastError: 'the segment was archived' },
    });
    await pool.query('delete from segment_exports');
    await send(exportOf(readers), settings());
    await pool.query(`update segment_exports set tries = 5, last_error = 'the disk is full'`);
    const { lastError } = await working(settings(), () => ended());
    expect(lastError).toBe('5 tries failed; the last one: the disk is full');
  });

  test('with its callback retried on errors, subject to the network rule, for at most an hour', async () => {
    const config = settings();
    callbacks.statuses = [500];
    await send(exportOf(readers, { callback_endpoint: callbacks.url }), config);
    await working(config, async () => {
      await waitUntil(() => callbacks.bodies.length === 1, { what: 'the first try' });
      const noted = async () => (await shown())[0]!.lastError === 'the callback answered 500';
      await waitUntil(noted, { what: 'its note' });
      await pool.query('update segment_exports set due_at = now()');
      await waitUntil(async () => (await shown())[0]!.toldAt, { what: 'the second try' });
    });
    expect(callbacks.bodies[1]).toBe(callbacks.bodies[0]);
    await pool.query('delete from segment_exports');
    await send(exportOf(readers, { callback_endpoint: callbacks.url }), config);
    await working({ ...config, ALLOWED_NETWORKS: '' }, async () => {
      const noted = async () => /REFUSED_NETWORKS refuses/.test((await shown())[0]!.lastError ?? '');
      await waitUntil(noted, { what: 'the refused address' });
      const overdue = `ended_at = now() - interval '1 hour', due_at = now()`;
      await pool.query(`update segment_exports set ${overdue}`);
      const over = async () =>
        (await pool.query('select due_at from segment_exports')).rows[0].due_at === null;
      await waitUntil(over, { what: 'the end of trying' });
    });
    expect([callbacks.bodies.length, (await shown())[0]!.toldAt]).toEqual([2, null]);
  });
});
