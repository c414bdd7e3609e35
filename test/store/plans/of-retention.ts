import { newId } from '../../../src/platform/ids.ts';
import {
  filesOfMonth,
  insertFile,
  listFiles,
  removeFile,
  setFileState,
  setPolicy,
  summarizeRetention,
  verifyFile,
} from '../../../src/store/archive-files.ts';
import { listPartitions, ownersIn } from '../../../src/store/partitions.ts';
import {
  countStretch,
  deleteRows,
  dueErasures,
  findDeleted,
  findNextId,
  finishErasure,
  insertOwned,
  readStretch,
} from '../../../src/store/retention.ts';
import {
  clearFailure,
  listFailures,
  noteFinished,
  readClock,
  readRetentionState,
  recordFailure,
} from '../../../src/store/retention-runs.ts';
import type { Asking } from './asking.ts';

const NIL = '00000000-0000-0000-0000-000000000000';
const found = { rows: 1, least: null, greatest: null, checksum: '1', bytes: 1, sha256: 'a' };

/** Months that go, the index of the archive, and months that come back. */
export const ofRetention: Asking = (store, { workspaceId, users }) => {
  const file = { workspaceId, month: '2020-01', kind: 'events' as const, id: newId() };
  const stretch = { workspaceId, after: NIL, before: newId() };
  const rows = users
    .slice(0, 2)
    .map(({ id }) => ({ id: newId(), profile_id: id, time: '2020-01-01T00:00:00Z' }));
  const event = { name: 'seen', app_id: null, properties: null };
  const purchase = {
    product_id: 'hat',
    currency: 'EUR',
    price: '1',
    quantity: 1,
    app_id: null,
    properties: null,
  };
  const failures = [
    () => recordFailure(store, { ...file, task: 'archive', reason: 'no room' }),
    async () => {
      for await (const _ of listFailures(store));
    },
    () => clearFailure(store, { ...file, task: 'archive' }),
    () => noteFinished(store),
    () => readRetentionState(store).then(() => {}),
    () => readClock(store).then(() => {}),
  ];
  return [
    () => insertFile(store, { ...file, state: 'archiving', object: 'a' }),
    () =>
      insertFile(store, { ...file, state: 'archiving', object: 'a' }).then(() =>
        verifyFile(store, { ...file, ...found }),
      ),
    () => setFileState(store, file, { state: 'restored', days: 1 }),
    () => filesOfMonth(store, file),
    async () => {
      for await (const _ of listFiles(store, ['verified'], workspaceId));
    },
    () => removeFile(store, file),
    () => summarizeRetention(store, { limit: 100 }),
    () => setPolicy(store, workspaceId, 12),
    () => setPolicy(store, workspaceId, undefined),
    () => listPartitions(store),
    async () => void (await ownersIn(store, (await listPartitions(store))[0]!)),
    () => dueErasures(store, 14),
    () => finishErasure(store, workspaceId, new Date().toISOString()),
    ...failures,
    () =>
      findDeleted(
        store,
        workspaceId,
        rows.map((row) => row.profile_id),
      ),
    ...(['events', 'purchases'] as const).flatMap((kind) => [
      () => findNextId(store, kind, stretch),
      () => countStretch(store, kind, { ...stretch, limit: 1000 }),
      () => readStretch(store, { kind }, { ...stretch, limit: 500 }),
      () => deleteRows(store, kind, { workspaceId, ids: rows.map(({ id }) => id) }),
      () =>
        insertOwned(store, kind, {
          workspaceId,
          rows: rows.map((row) => ({ ...row, ...(kind === 'events' ? event : purchase) })),
        }),
    ]),
  ];
};
