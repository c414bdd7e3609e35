import { v7 as uuidv7 } from 'uuid';
import { beforeAll, describe, expect, test } from 'vitest';
import type { Database } from '../../src/store/database.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { findUnfinishedRuns, startRun } from '../../src/store/sync-runs.ts';
import { createDatabase } from '../setup/fixtures.ts';
import { createIntegration } from '../setup/integrations.ts';
import { createWorkspace } from '../setup/workspace.ts';

describe('a run', () => {
  let database: Database;
  let workspaceId: string;
  beforeAll(async () => {
    database = openDatabase((await createDatabase()).url, 8);
    ({ id: workspaceId } = await createWorkspace(database.pool));
    return database.stop;
  });

  const start = (integrationId: string, id = uuidv7()) =>
    startRun(database.pool, { id, integrationId, askedBy: 'operator' });

  test('starts once when eight starts are requested at the same time', async () => {
    const integration = await createIntegration(database.pool, workspaceId);
    const results = await Promise.all(Array.from({ length: 8 }, () => start(integration)));
    expect(results.sort()).toEqual([...Array(7).fill('in progress'), 'started']);
  });

  test('starts once the previous run has ended', async () => {
    const integration = await createIntegration(database.pool, workspaceId);
    const [first, second] = [uuidv7(), uuidv7()];
    expect(await start(integration, first)).toBe('started');
    expect(await start(integration, second)).toBe('in progress');
    expect(await findUnfinishedRuns(database.pool)).toContain(first);
    await database.pool.query("update sync_jobs set status = 'success', finished_at = now() where id = $1", [
      first,
    ]);
    expect(await start(integration, second)).toBe('started');
    const unfinished = await findUnfinishedRuns(database.pool);
    expect(unfinished).toContain(second);
    expect(unfinished).not.toContain(first);
  });

  test.each(['draft', 'paused'] as const)('does not start for a %s integration', async (status) => {
    expect(await start(await createIntegration(database.pool, workspaceId, { status }))).toBe('not active');
  });

  test('does not start for an unknown integration', async () => {
    expect(await start(uuidv7())).toBe('unknown');
  });
});
