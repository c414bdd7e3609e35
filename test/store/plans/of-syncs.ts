import { newId } from '../../../src/ids.ts';
import { addToBoundary } from '../../../src/store/syncs/add-to-boundary.ts';
import { advanceIntegration } from '../../../src/store/syncs/advance-integration.ts';
import { advanceRun } from '../../../src/store/syncs/advance-run.ts';
import { cancelRun } from '../../../src/store/syncs/cancel-run.ts';
import { clearBoundary } from '../../../src/store/syncs/clear-boundary.ts';
import { countLedgered } from '../../../src/store/syncs/count-ledgered.ts';
import { expectBoundary } from '../../../src/store/syncs/expect-boundary.ts';
import { findChunk } from '../../../src/store/syncs/find-chunk.ts';
import { findRefused } from '../../../src/store/syncs/find-refused.ts';
import { findRun } from '../../../src/store/syncs/find-run.ts';
import { findUnfinishedRuns } from '../../../src/store/syncs/find-unfinished-runs.ts';
import { finishRun } from '../../../src/store/syncs/finish-run.ts';
import { forgetEndedExpected } from '../../../src/store/syncs/forget-ended-expected.ts';
import { forgetExpected } from '../../../src/store/syncs/forget-expected.ts';
import { forgetRowErrors } from '../../../src/store/syncs/forget-row-errors.ts';
import { forgetRuns } from '../../../src/store/syncs/forget-runs.ts';
import { insertRowErrors } from '../../../src/store/syncs/insert-row-errors.ts';
import { isCancelled } from '../../../src/store/syncs/is-cancelled.ts';
import { listRuns } from '../../../src/store/syncs/list-runs.ts';
import { meetBoundary } from '../../../src/store/syncs/meet-boundary.ts';
import { readRules } from '../../../src/store/syncs/read-rules.ts';
import { readSyncState } from '../../../src/store/syncs/read-sync-state.ts';
import { removeChunk } from '../../../src/store/syncs/remove-chunk.ts';
import { selectRuns } from '../../../src/store/syncs/select-runs.ts';
import { stageChunk } from '../../../src/store/syncs/stage-chunk.ts';
import { startRun } from '../../../src/store/syncs/start-run.ts';
import type { Asking } from './asking.ts';

/** Runs of warehouse integrations, and what they remember. */
export const ofSyncs: Asking = (
  store,
  { workspaceId, integrationId, runId, oldRunId, attempt, envelopes, deadLetters },
) => {
  const rows = { ab: 1, cd: 2 };
  const progress = { rows: 1, failed: 0, errors: [], boundary: { moved: false, newest: {}, unreadable: {} } };
  const failed = { number: 1, updated_at: null, identifier: null, payload: null, reason: 'reason' };
  const advance = { jobId: runId, expected: 0, read: 1, synced: 1, failed: 0, lastTimestamp: undefined };
  return [
    () => startRun(store, { id: newId(), integrationId, askedBy: 'api' }),
    () => findRun(store, runId),
    () => findUnfinishedRuns(store),
    () => isCancelled(store, runId),
    () => cancelRun(store, integrationId),
    () => advanceRun(store, advance),
    () => advanceIntegration(store, integrationId, new Date().toISOString()),
    () => finishRun(store, runId, { status: 'success', message: undefined }),
    () => stageChunk(store, runId, { envelopeIds: envelopes, entries: [], rows: {}, progress }),
    () => findChunk(store, runId),
    () => removeChunk(store, runId),
    () => countLedgered(store, envelopes),
    () => findRefused(store, deadLetters),
    () => insertRowErrors(store, runId, [failed]),
    () => addToBoundary(store, integrationId, rows, false),
    () => clearBoundary(store, integrationId, false),
    () => expectBoundary(store, { attempt: newId(), jobId: runId, integrationId }),
    () => meetBoundary(store, attempt, new Map(Object.entries(rows))),
    () => forgetExpected(store, attempt),
    () => forgetEndedExpected(store),
    () => forgetRowErrors(store),
    () => forgetRuns(store),
    () => readRules(store, workspaceId),
    () => readSyncState(store),
    ...(['older', 'newer'] as const).map(
      (direction) => () => listRuns(store, integrationId, { direction, from: oldRunId, size: 10 }),
    ),
    () => selectRuns(store, integrationId, { id: runId, limit: 10 }),
    () => selectRuns(store, integrationId, { after: oldRunId, limit: 10 }),
  ];
};
