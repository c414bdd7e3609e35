import { listExports, type ShownExport as StoredExport } from '../store/segment-exports.ts';
import { describeResource, iso, readById, type Shown } from './resource.ts';

/** An export with its workspace. */
export interface ShownExport extends StoredExport {
  workspaceId: string;
}

function stateOf({ state, lastError }: ShownExport): Shown {
  if (state === 'failed') return { badge: 'failed', tone: 'bad' };
  if (state === 'ready') return { badge: 'complete', tone: 'good' };
  return lastError === null ? { badge: 'being written' } : { badge: 'retrying', tone: 'warn' };
}

/** Formats only the host of the callback URL, because the rest may contain credentials. */
function callbackOf({ callback, toldAt, state, lastError }: ShownExport): Shown {
  if (callback === null) return { text: 'none' };
  const { host } = new URL(callback);
  if (toldAt) return { text: `${host}, called`, at: toldAt };
  if (state === 'failed') return { text: `${host}, not called` };
  return state === 'ready' && lastError !== null
    ? { badge: 'not reached', tone: 'warn', text: host }
    : { text: host };
}

/**
 * Exports requested through `/users/export/segment`. Download links are not shown, because they give access to the
 * users.
 */
export const exports = describeResource<ShownExport>({
  noun: 'exports',
  one: 'export',
  many: 'exports',
  title: 'Exports',
  sentence: 'List the segment exports of a workspace.',
  example: 'segments exports --workspace default',
  lead: 'Segment exports that clients requested, newest first. Finished exports are listed for 30 days.',
  scope: 'workspace',
  isOfOne: true,
  isListOnly: true,
  permit: 'segments',
  nameTitle: 'Segment',
  columns: [
    { name: 'export_id', value: ({ id }) => id },
    { name: 'segment_id', value: ({ segmentId }) => segmentId },
    { name: 'requested_at', title: 'Requested', kind: 'time', value: ({ requestedAt }) => iso(requestedAt) },
    { name: 'state', title: 'State', value: ({ state }) => state, shown: stateOf },
    { name: 'users', title: 'Users', kind: 'number', value: ({ users }) => users },
    { name: 'files', title: 'Files', kind: 'number', value: ({ files }) => files },
    { name: 'bytes', title: 'Bytes', kind: 'number', value: ({ bytes }) => bytes },
    {
      name: 'ended_at',
      title: 'Ended',
      kind: 'time',
      value: ({ endedAt }) => iso(endedAt),
      shown: ({ endedAt }) => (endedAt ? { at: endedAt } : { text: 'not yet' }),
    },
    {
      name: 'expires_at',
      title: 'Link opens until',
      value: () => null,
      shown: ({ expiresAt, state }) =>
        expiresAt && state === 'ready' ? { at: expiresAt } : { text: 'no link' },
      not: ['json', 'rows', 'table'],
    },
    { name: 'callback', title: 'Callback', value: ({ callback }) => callback, shown: callbackOf },
    { name: 'told_at', value: ({ toldAt }) => iso(toldAt) },
    {
      name: 'error',
      title: 'Error',
      value: ({ lastError }) => lastError,
      shown: ({ lastError }) => ({ text: lastError ?? 'none' }),
    },
    { name: 'object_prefix', title: 'Object prefix', kind: 'id', value: ({ objectPrefix }) => objectPrefix },
  ],
  listing: {
    sentence: 'List the exports requested with POST /users/export/segment, newest first, with their errors.',
    example: 'segments exports --workspace default',
  },
  async list({ database: { pool } }, { owners = [], before, limit }) {
    const [workspaceId] = owners;
    if (workspaceId === undefined) return [];
    const rows = await listExports(pool, workspaceId, { before, limit });
    return rows.map((one) => ({ ...one, workspaceId }));
  },
  find: async () => undefined,
  nameOf: ({ segmentName }) => segmentName,
  pathOf: ({ segmentId, workspaceId }) => `/segments/${segmentId}?workspace=${workspaceId}`,
  ownerOf: ({ workspaceId }) => workspaceId,
  naming: readById('export'),
  empty: 'A client requests one by POST /users/export/segment, with the id of a segment.',
  actions: [],
});
