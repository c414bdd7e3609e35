import { now } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';
import { type AuditEntry, audited } from '../store/audit.ts';
import { byNameOrId } from '../store/name-or-id.ts';
import {
  listExports,
  MAX_OPEN_EXPORTS,
  requestSegmentExport,
  type ShownExport as StoredExport,
} from '../store/segment-exports.ts';
import { listOf, MAX_SUGGESTIONS, text, withDefault } from './fields.ts';
import { Refusal } from './refusal.ts';
import { creation, describeResource, iso, readById, type Shown } from './resource.ts';

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

/** Maximum length of the list of fields in characters. */
const MAX_FIELDS_LENGTH = 5000;

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
  lead: 'Segment exports that clients or people of the console requested, newest first. Finished exports are listed for 30 days. To write events or users to a folder of a machine, run there: penstock export --workspace default --what events --from 2026-01-01 --to ./events',
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
    // Not an id, which is in one line: a prefix has up to 47 characters, and the table would be wider than the page.
    { name: 'object_prefix', title: 'Object prefix', value: ({ objectPrefix }) => objectPrefix },
  ],
  listing: {
    sentence: 'List the exports requested with POST /users/export/segment, newest first, with their errors.',
    example: 'segments exports --workspace default',
  },
  async list({ database }, { owners = [], before, limit }) {
    const [workspaceId] = owners;
    if (workspaceId === undefined) return [];
    const rows = await listExports(database, workspaceId, { before, limit });
    return rows.map((one) => ({ ...one, workspaceId }));
  },
  find: async () => undefined,
  nameOf: ({ segmentName }) => segmentName,
  pathOf: ({ segmentId, workspaceId }) => `/segments/${segmentId}?workspace=${workspaceId}`,
  ownerOf: ({ workspaceId }) => workspaceId,
  naming: readById('export'),
  empty: 'An export writes the users of a segment to a file.',
  creation: creation({
    verb: 'export',
    button: 'Start export',
    sentence:
      'Start an export of all users of a segment, as POST /users/export/segment does, and print the link to its file once.',
    example: 'segments export --workspace default --segment Everyone --fields external_id,email',
    permit: ['segments', 'users', 'pii', 'export'],
    lead: 'A sync process writes the files. The link opens once they are complete, for 4 hours, and gives access to the users without a sign-in.',
    warning: ({ config }) =>
      config.PUBLIC_URL || config.SEGMENT_EXPORT_URL.startsWith('s3://')
        ? undefined
        : 'PUBLIC_URL is not set for the console (process board), so the link has the address of a web process on this machine. Set PUBLIC_URL to the address at which clients reach web, and restart board.',
    done: 'The export has started. A sync process writes its files to the bucket of SEGMENT_EXPORT_URL.',
    fields: {
      segment: text(
        { label: 'Segment', help: 'name or id of an active segment', value: 'segment' },
        (given) => given,
      ),
      fields: withDefault(
        text(
          {
            label: 'Fields',
            help: 'fields of a user, separated by commas; POST /users/export/segment lists them (default: external_id,email)',
            value: 'list',
          },
          listOf,
          { maxLength: MAX_FIELDS_LENGTH },
        ),
        ['external_id', 'email'],
      ),
    },
    linked: ['segment'],
    suggestions: async ({ database: { prisma } }, { id }) => {
      const active = await prisma.segment.findMany({
        ...{ where: { workspaceId: id, archivedAt: null }, select: { name: true } },
        ...{ orderBy: { id: 'desc' }, take: MAX_SUGGESTIONS },
      });
      return { segment: active.map(({ name }) => name) };
    },
    async run({ database, config, actor }, { owner, values }) {
      // Loaded only by the action that needs them, because each command of segments loads this file.
      const [{ prepareExport }, { userFields }, { createDownloadSettings }] = await Promise.all([
        import('../operations/users.export.segment.ts'),
        import('../operations/export/user-fields.ts'),
        import('../export/segment-export.ts'),
      ]);
      const known = Object.keys(userFields(config.SERVICE_ID_FIELD));
      const unknown = values.fields.filter((name) => !known.includes(name));
      if (unknown.length > 0)
        throw new Refusal(
          `unknown field: ${unknown.join(', ').slice(0, 200)}; the fields are ${known.join(', ')}`,
          'fields',
        );
      const segment = await database.prisma.segment.findFirst({
        where: { workspaceId: owner.id, archivedAt: null, ...byNameOrId(values.segment) },
        select: { id: true, name: true },
      });
      if (!segment)
        throw new Refusal(
          `the workspace has no active segment with the name or the id '${values.segment}'`,
          'segment',
        );
      const wanted = await prepareExport(
        { database, downloads: createDownloadSettings(config) },
        {
          ...{ workspaceId: owner.id, id: newId(), segmentId: segment.id, callback: null, now: now() },
          ...{ fields: values.fields, attributes: null, outputFormat: 'zip' },
        },
      );
      const made = await audited(database.pool, actor, async (tx) => {
        const result = await requestSegmentExport(tx, wanted);
        const entry: AuditEntry = {
          ...{ action: 'segments.export', subject: { kind: 'segment', id: segment.id } },
          ...{ workspaceId: owner.id, detail: { export: wanted.id, fields: values.fields } },
        };
        return { result, entries: typeof result === 'string' ? [] : [entry] };
      });
      if (made === 'running')
        throw new Refusal(
          `an export of '${segment.name}' is in progress; wait until it has ended`,
          'segment',
          409,
        );
      if (made === 'many')
        throw new Refusal(
          `${MAX_OPEN_EXPORTS} exports of the workspace are in progress; wait until one has ended`,
          undefined,
          409,
        );
      return {
        secret: made.url === null ? undefined : { name: 'url', value: made.url, what: 'link' },
        row: { export_id: wanted.id, segment: segment.name, object_prefix: made.objectPrefix },
        note: 'A sync process writes the files; the list of exports shows their progress.',
      };
    },
  }),
  actions: [],
});
