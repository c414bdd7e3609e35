import { beforeAll, describe, expect, test } from 'vitest';
import { workOff } from '../../workers/sync/work-off.ts';
import { at, countingRow } from './memory-source.ts';
import { createSyncScene, never, type SyncScene } from './scene.ts';

describe.each(['redis', 'postgres'] as const)('rows that failed, with the queue in %s', (kind) => {
  let scene: SyncScene;
  beforeAll(async () => {
    scene = await createSyncScene(kind);
    return scene.stop;
  });

  test('keep their place in the run, each once, also when another process goes on with it', async () => {
    const rows = Array.from({ length: 1200 }, (_, index) => ({
      ...countingRow(`numbered${index}`, at(index)),
      ...(index % 100 === 7 && { payload: '{' }),
    }));
    const integration = await scene.integrate({ rows });
    const id = await scene.begin(integration);
    const leaving = new AbortController();
    const open: typeof scene.context.open = async (run) => {
      const source = await scene.context.open(run);
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
    expect(await workOff(id, { ...scene.context, open }, left)).toBe(false);
    const { rows_read } = await scene.runRow(id);
    expect(rows_read).toBeGreaterThan(0);
    expect(rows_read).toBeLessThan(1200);
    expect(await workOff(id, scene.context, never)).toBe(true);
    expect(await scene.runRow(id)).toMatchObject({ rows_read: 1200, rows_synced: 1188, rows_failed: 12 });
    const expected = Array.from({ length: 12 }, (_, index) => String(index * 100 + 8));
    expect(Object.keys(await scene.errors(id))).toEqual(expected);
  });

  test('a user who is deleted takes along the rows that failed for them, whatever those call them, and nobody else', async () => {
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
