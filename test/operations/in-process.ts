import { BadRequest } from '../../src/errors.ts';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import type { DirectOperation, Resources } from '../../src/operations/operation.ts';
import { usersExportIds } from '../../src/operations/users.export.ids.ts';
import { usersTrack } from '../../src/operations/users.track.ts';
import type { Json } from '../../src/profile/json.ts';
import { compile, describeError } from '../../src/schemas/compile.ts';
import { storeClock } from '../../src/store/ledger.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import type { Applied } from '../../workers/batch/apply.ts';
import { createDatabase } from '../setup/fixtures.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { applyObjects } from '../workers/apply-batch.ts';
import { type Answer, callerOf } from './caller.ts';

/** Creates a workspace in a new database, and operations on it without server, queue and worker. */
export async function createStore(serviceIdField = 'service_id') {
  const { url } = await createDatabase();
  const database = openDatabase(url, 3);
  const { id: workspaceId } = await createWorkspace(database.pool);
  const track = usersTrack(serviceIdField);

  /** Applies accepted objects as a worker applies an envelope. */
  async function apply(
    objects: AcceptedObject[],
    workspace = workspaceId,
    requestId = 'request',
  ): Promise<Applied> {
    const items = objects.map((object, ordinal) => ({
      workspaceId: workspace,
      requestId,
      lane: 0,
      ordinal,
      object,
    }));
    const tx = await database.pool.connect();
    try {
      await tx.query('begin');
      const { rows } = await tx.query(`select ${storeClock} as now`);
      const applied = await applyObjects(tx, items, rows[0].now);
      await tx.query('commit');
      return applied;
    } finally {
      tx.release();
    }
  }

  return {
    url,
    database,
    workspaceId,
    apply,

    /** Plans a body and applies it, like web followed by a worker. */
    async track(body: Record<string, Json>, workspace = workspaceId): Promise<Answer> {
      const { objects, reply } = track.plan(callerOf(workspace), body);
      await apply(objects, workspace);
      return reply as Answer;
    },

    exportIds: call(usersExportIds(serviceIdField), { database, serviceIdField }, workspaceId),

    async stop() {
      await database.stop();
    },
  };
}

export type Store = Awaited<ReturnType<typeof createStore>>;

/** Runs the stages of a direct operation after the parser of the body. */
function call(
  operation: DirectOperation,
  resources: Pick<Resources, 'database' | 'serviceIdField'>,
  workspaceId: string,
) {
  const check = compile(operation.body!);
  return async (body: Record<string, Json>, workspace = workspaceId): Promise<Answer> => {
    if (!check(body)) throw new BadRequest(describeError(check.errors![0]!));
    const { parts, ...reply } = await operation.handle(
      callerOf(workspace),
      { body, query: {}, params: {} },
      resources as Resources,
    );
    if (!parts) return reply as Answer;
    let text = '';
    for await (const part of parts) text += part;
    return { ...reply, body: JSON.parse(text) } as Answer;
  };
}
