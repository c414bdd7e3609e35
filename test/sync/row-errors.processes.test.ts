import { beforeAll, describe, expect, test } from 'vitest';
import { eitherBackend } from '../setup/fleet.ts';
import { at, countingRow } from './memory-source.ts';
import { createSyncScene, never, type SyncScene } from './scene.ts';

describe.each(eitherBackend)('rows that failed, with the queue in %s', (kind) => {
  let scene: SyncScene;
  beforeAll(async () => {
    scene = await createSyncScene(kind);
    return scene.stop;
  });

  test('keep their number in the run, each once, also when another process resumes it', async () => {
    const rows = Array.from({ length: 1200 }, (_, index) => ({
      ...countingRow(`numbered${index}`, at(index)),
      ...(index % 100 === 7 && { payload: '{' }),
    }));
    const integration = await scene.integrate({ rows });
    const id = await scene.begin(integration);
    const leaving = new AbortController();
    const open: typeof scene.parts.open = async (run, signal) => {
      const source = await scene.parts.open(run, signal);
      return {
        ...source,
        async *rowsSince(since, options) {
          for await (const some of source.rowsSince(since, { ...options, batch: 250 })) {
            yield some;
            if (some.at(-1)!.updatedAt! >= at(749)) leaving.abort();
          }
        },
      };
    };
    const left = { soon: leaving.signal, now: never.now };
    expect(await scene.process(id, left, { open })).toBe(false);
    const { rows_read } = await scene.runRow(id);
    expect(rows_read).toBeGreaterThan(0);
    expect(rows_read).toBeLessThan(1200);
    expect(await scene.process(id)).toBe(true);
    expect(await scene.runRow(id)).toMatchObject({ rows_read: 1200, rows_synced: 1188, rows_failed: 12 });
    const expected = Array.from({ length: 12 }, (_, index) => String(index * 100 + 8));
    expect(Object.keys(await scene.errors(id))).toEqual(expected);
  });

  test('a row with a warning is synced, and its log entry lists the cut and omitted values', async () => {
    const row = (name: string, second: number, payload: object) => ({
      updatedAt: at(second),
      identifiers: { external_id: name },
      payload: JSON.stringify(payload),
    });
    const rows = [
      row('warned1', 0, { dob: 'soon', gender: 'x', points: 1 }),
      row('warned2', 1, { points: 2 }),
      row('warned3', 2, { email: 'none' }),
      row('warned4', 3, { motto: 'x'.repeat(300), points: 4 }),
    ];
    const run = await scene.sync(await scene.integrate({ rows }));
    expect(run).toMatchObject({ status: 'partial', rows_read: 4, rows_synced: 3, rows_failed: 1 });
    expect(await scene.points()).toMatchObject({ warned1: 1, warned2: 2, warned4: 4 });
    const { rows: log } = await scene.pool.query(
      'select number::integer, synced, reason from sync_row_errors where job_id = $1 order by number',
      [run.id],
    );
    expect(log).toEqual([
      {
        number: 1,
        synced: true,
        reason:
          "'dob' is not valid: it must be a date as YYYY-MM-DD; it was omitted; 'gender' is not valid: it must be 'M', 'F', 'O', 'N', 'P' or null; it was omitted",
      },
      {
        number: 3,
        synced: false,
        reason: "The value provided for the 'email' field is not a valid email.",
      },
      { number: 4, synced: true, reason: "'motto' was cut to 255 characters" },
    ]);
  });

  test('a run whose rows are all synced with a warning is a success', async () => {
    const rows = [{ ...countingRow('merely-warned', at(0)), payload: '{"dob":"soon"}' }];
    expect(await scene.sync(await scene.integrate({ rows }))).toMatchObject({
      status: 'success',
      rows_synced: 1,
      rows_failed: 0,
      message: null,
    });
  });

  test("deleting a user deletes the user's failed rows, by any identifier, and keeps the others", async () => {
    const bad = (identifiers: Record<string, string>, second: number) => ({
      updatedAt: at(second),
      identifiers,
      payload: '{',
    });
    const rows = [
      { ...countingRow('leaver', at(0)), payload: '{"email":"leaver@example.com","first_name":"G"}' },
      bad({ external_id: 'leaver' }, 1),
      bad({ email: 'Leaver@Example.com' }, 2),
      bad({ external_id: 'never-there' }, 3),
      bad({ external_id: 'stays' }, 4),
    ];
    const run = await scene.sync(await scene.integrate({ rows }));
    expect(run).toMatchObject({ rows_synced: 1, rows_failed: 4 });
    const deletes = {
      columns: ['updated_at', 'external_id'],
      rows: ['leaver', 'never-there'].map((external_id, index) => ({
        updatedAt: at(index),
        identifiers: { external_id },
      })),
    };
    expect(await scene.sync(await scene.integrate(deletes, { kind: 'deletes' }))).toMatchObject({
      rows_synced: 2,
    });
    expect(Object.keys(await scene.errors(run.id))).toEqual(['5']);
  });
});
