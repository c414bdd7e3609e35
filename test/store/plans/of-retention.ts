import { newId } from '../../../src/platform/ids.ts';
import {
  filesOfMonth,
  insertFile,
  listFiles,
  removeFile,
  setFileState,
  summarizeRetention,
  verifyFile,
} from '../../../src/store/archive-files.ts';
import { listPartitions, ownersIn, partitionWith } from '../../../src/store/partitions.ts';
import {
  BEGINNING,
  countRows,
  deleteRows,
  dueErasures,
  findDeleted,
  finishErasure,
  insertOwned,
  readRows,
  scanMonths,
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

const result = { rows: 1, least: null, greatest: null, last: null, checksum: '1', bytes: 1, sha256: 'a' };

/** Months that are removed, the index of the archive, and months that are restored. */
export const ofRetention: Asking = (store, { workspaceId, users }) => {
  const file = { workspaceId, month: '2020-01', kind: 'events' as const, id: newId() };
  const ids = { after: BEGINNING.id, before: newId() };
  const rows = users
    .slice(0, 2)
    .map(({ id }) => ({ id: newId(), profileId: id, time: '2020-01-01T00:00:00Z' }));
  const event = { name: 'seen', appId: null, properties: null };
  const purchase = {
    productId: 'hat',
    currency: 'EUR',
    price: '1',
    quantity: 1,
    appId: null,
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
        verifyFile(store, { ...file, ...result }),
      ),
    () => setFileState(store, file, { state: 'restored', days: 1 }),
    () => filesOfMonth(store, file),
    async () => {
      for await (const _ of listFiles(store, ['verified'], workspaceId));
    },
    () => removeFile(store, file),
    () => summarizeRetention(store, { limit: 100 }),
    () => listPartitions(store),
    async () => void (await ownersIn(store, (await listPartitions(store))[0]!)),
    () => partitionWith(store, file).then(() => {}),
    () => dueErasures(store, 14),
    () => finishErasure(store, workspaceId, new Date().toISOString()),
    ...failures,
    () =>
      findDeleted(
        store,
        workspaceId,
        rows.map((row) => row.profileId),
      ),
    ...(['events', 'purchases'] as const).flatMap((kind) => [
      async () => {
        const month = new Date(Date.now() - 864e5 * 20).toISOString().slice(0, 7);
        const of = { workspaceId, kind, from: await partitionWith(store, { kind, month }) };
        await readRows(store, of, { behind: { profileId: users[0]!.id, id: ids.before }, limit: 500 });
        await readRows(store, of, { behind: BEGINNING, limit: 500 });
        await scanMonths(store, of, { behind: BEGINNING, before: ids.before, limit: 5000 });
        await countRows(store, of, { ...ids, limit: 1000 });
        await deleteRows(store, of.from, { workspaceId, rows });
      },
      () => deleteRows(store, kind, { workspaceId, rows }),
      () =>
        insertOwned(store, kind, {
          workspaceId,
          rows: rows.map((row) => ({ ...row, ...(kind === 'events' ? event : purchase) })),
        }),
    ]),
  ];
};
