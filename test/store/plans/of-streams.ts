import { newId } from '../../../src/platform/ids.ts';
import { watchHorizon } from '../../../src/store/horizon.ts';
import {
  endExport,
  finishExport,
  leaseExports,
  releaseExport,
  renewExport,
} from '../../../src/store/segment-export-leases.ts';
import {
  findDownload,
  forgetExports,
  listExpired,
  listFailedExports,
  noteRemoved,
  requestSegmentExport,
} from '../../../src/store/segment-exports.ts';
import {
  createDestination,
  listDestinations,
  removeDestination,
  replayFrom,
  setDestinationState,
  trimLog,
} from '../../../src/store/stream-destinations.ts';
import {
  beginErasurePass,
  eraseFromLog,
  isErasureWaiting,
  selectErasingWorkspaces,
} from '../../../src/store/stream-erasures.ts';
import {
  advanceDestination,
  leaseDestinations,
  releaseDestination,
  renewDestination,
} from '../../../src/store/stream-leases.ts';
import { appendLog, readLog, readLoggedActivity, readNames } from '../../../src/store/stream-log.ts';
import { entriesOf } from '../../setup/stream-entries.ts';
import type { Asking } from './asking.ts';

/** Streams, exports, and their progress. */
export const ofStreams: Asking = (store, { workspaceId, users, objects }) => {
  const id = newId();
  const one = { workspaceId, id };
  const leased = { ...one, lease: newId() };
  const moved = { position: '3', place: 0, delivered: 1, milliseconds: 1000 };
  const entry = { workspaceId, kind: 'i' as const, profileId: newId(), id: newId(), detail: {} };
  const ids = users.map((user) => user.id);
  const requested = {
    ...{ ...one, segmentId: id, objectPrefix: 'x', fields: ['email'], attributes: null },
    ...{ outputFormat: 'zip' as const, url: null, callback: null },
  };
  const counts = { users: 1, files: 1, bytes: 1, milliseconds: 1000 };
  const wanted = { milliseconds: 1000, limit: 2 };
  const keys = objects.map((object) => ({ profileId: ids[0]!, id: object }));
  return [
    () => createDestination(store, { ...one, name: 'crm', kind: 'webhook', settings: {}, secret: null }),
    () =>
      createDestination(store, {
        ...{ workspaceId, id: newId(), name: 'files', kind: 'files', settings: {}, secret: null },
        ...{ gatherMs: 1000, from: new Date() },
      }),
    () => listDestinations(store, { workspaceId, limit: 10 }),
    () => setDestinationState(store, one, 'paused'),
    () => replayFrom(store, one, new Date()),
    () => leaseDestinations(store, { milliseconds: 1000, limit: 10, gathers: false }),
    () => leaseDestinations(store, { milliseconds: 1000, limit: 10, gathers: true }),
    () => renewDestination(store, leased, { milliseconds: 1000, file: { ...moved, hour: new Date() } }),
    () => advanceDestination(store, leased, moved),
    () => releaseDestination(store, leased),
    () => removeDestination(store, one),
    () => appendLog(store, entriesOf([entry]), new Date().toISOString()),
    () => readLog(store, workspaceId, { after: '5', horizon: '9000', limit: 8, entries: 500 }),
    () => readLoggedActivity(store, workspaceId, { events: keys, purchases: keys }),
    // The last id is unknown, so it is also searched among merged users.
    () => readNames(store, workspaceId, [...ids, newId()]),
    () => trimLog(store, 7, 500),
    () => selectErasingWorkspaces(store),
    () => beginErasurePass(store, workspaceId, 0),
    () => eraseFromLog(store, workspaceId, 100),
    () => isErasureWaiting(store, workspaceId),
    () => watchHorizon(store).check(),
    async () => {
      await requestSegmentExport(store, requested);
      return requestSegmentExport(store, { ...requested, id: newId() });
    },
    () => leaseExports(store, 'open', wanted),
    () => leaseExports(store, 'ready', wanted),
    () => renewExport(store, leased, counts),
    () => finishExport(store, leased, { ...counts, linkMs: 1000 }),
    () => releaseExport(store, leased, { retryMs: 1000 }),
    () => endExport(store, leased, null),
    () => findDownload(store, one),
    () => listFailedExports(store),
    () => listExpired(store, { milliseconds: 1000, limit: 10 }),
    () => noteRemoved(store, one),
    () => forgetExports(store, 10),
  ];
};
