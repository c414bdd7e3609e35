import { newId } from '../../../src/platform/ids.ts';
import {
  eraseStaleRows,
  findImport,
  finishImport,
  insertImport,
  listStoppedImports,
  stageEnvelopes,
  withImportLock,
} from '../../../src/store/imports.ts';
import {
  beginAttempts,
  countAttempts,
  endAttempts,
  forgetAttempts,
} from '../../../src/store/job-attempts.ts';
import {
  addToBoundary,
  clearBoundary,
  expectBoundary,
  forgetEndedExpected,
  forgetExpected,
  meetBoundary,
} from '../../../src/store/sync-boundary.ts';
import {
  addToOutbox,
  endStaleRuns,
  findInOutbox,
  findRefused,
  forgetRowErrors,
  insertRowErrors,
  removeFromOutbox,
  selectRowErrors,
} from '../../../src/store/sync-chunks.ts';
import { listRuns, readRules, readSyncState, selectRuns } from '../../../src/store/sync-lists.ts';
import {
  advanceIntegration,
  advanceRun,
  cancelRun,
  findRun,
  findUnfinishedRuns,
  finishRun,
  forgetRuns,
  isCancelled,
  startRun,
} from '../../../src/store/sync-runs.ts';
import type { Asking } from './asking.ts';

/** Runs of warehouse integrations, imports of files, and their state. */
export const ofSyncs: Asking = (
  store,
  { workspaceId, integrationId, runId, oldRunId, attempt, envelopes, deadLetters },
) => {
  const rows = { ab: 1, cd: 2 };
  const progress = { rows: 1, failed: 0, errors: [], boundary: { moved: false, newest: {}, unreadable: {} } };
  const failed = {
    number: 1,
    updatedAt: null,
    identifier: null,
    identifiers: [],
    payload: null,
    reason: 'reason',
  };
  const advance = { jobId: runId, expected: 0, read: 1, synced: 1, failed: 0, watermark: undefined };
  const key = { workspaceId, key: Buffer.alloc(32) };
  const begun = { ...key, id: newId(), file: 'users.csv', digest: Buffer.alloc(32), reading: {} };
  const step = {
    expected: 0,
    progress: { rows: 1, accepted: 1, refused: 0, refusedBytes: 0 },
    staged: { envelopeIds: envelopes, entries: [] },
  };
  return [
    () => insertImport(store, begun, { kind: 'operator', name: 'ada', via: 'command_line' }),
    () => findImport(store, key),
    () => listStoppedImports(store, 3600),
    () => stageEnvelopes(store, key, step),
    () => finishImport(store, key, 0),
    () => withImportLock(store, key, async () => {}),
    () => startRun(store, { id: newId(), integrationId, askedBy: 'api' }),
    () => findRun(store, runId),
    () => findUnfinishedRuns(store),
    () => isCancelled(store, runId),
    () => cancelRun(store, integrationId),
    () => advanceRun(store, advance),
    () => advanceIntegration(store, integrationId, new Date().toISOString()),
    () => finishRun(store, runId, { status: 'success', message: undefined }),
    () => addToOutbox(store, runId, { envelopeIds: envelopes, entries: [], rows: {}, progress }),
    () => findInOutbox(store, runId),
    () => removeFromOutbox(store, runId),
    () => findRefused(store, deadLetters),
    () => insertRowErrors(store, runId, { failed: [failed], warned: [failed] }),
    () => addToBoundary(store, integrationId, { rows, unreadable: false }),
    () => clearBoundary(store, integrationId, false),
    () => expectBoundary(store, { attempt: newId(), jobId: runId, integrationId }),
    () => meetBoundary(store, attempt, new Map(Object.entries(rows))),
    () => forgetExpected(store, attempt),
    () => forgetEndedExpected(store),
    () => beginAttempts(store, { kind: 'object', ids: [newId(), newId()] }, newId()),
    () => countAttempts(store, { kind: 'sync run', ids: [newId()] }, newId()),
    () =>
      endAttempts(store, { kind: 'envelope', ids: [newId(), newId()] }, { processId: newId(), whose: 'all' }),
    () => forgetAttempts(store),
    () => forgetRowErrors(store),
    () => endStaleRuns(store),
    () => eraseStaleRows(store),
    () => forgetRuns(store),
    () => readRules(store, workspaceId),
    () => readSyncState(store),
    ...(['older', 'newer'] as const).map(
      (direction) => () => listRuns(store, integrationId, { direction, from: oldRunId, size: 10 }),
    ),
    () => selectRowErrors(store, runId, { after: 0, limit: 100 }),
    () => selectRuns(store, integrationId, { id: runId, limit: 10 }),
    () => selectRuns(store, integrationId, { after: oldRunId, limit: 10 }),
  ];
};
