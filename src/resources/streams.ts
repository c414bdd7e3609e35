import { integrationKeys } from '../embedded/address.ts';
import { grouped } from '../platform/format.ts';
import { newId } from '../platform/ids.ts';
import type { Json } from '../profile/json.ts';
import { eraseDeletedFromLog } from '../retention/erase-log.ts';
import { type AuditAction, audited, recordAudit } from '../store/audit.ts';
import type { Connection } from '../store/database.ts';
import {
  createDestination,
  type DestinationRow,
  findDestination,
  listDestinations,
  MAX_DESTINATIONS,
  readDestinationSecret,
  removeDestination,
  replayFrom,
  setDestinationState,
} from '../store/stream-destinations.ts';
import { beginErasurePass } from '../store/stream-erasures.ts';
import { DeliveryError } from '../streams/destination.ts';
import { locationOf, openDestination, openingBy } from '../streams/open-destination.ts';
import { name, optional, readTime, text, time } from './fields.ts';
import { Refusal, refuseTaken } from './refusal.ts';
import {
  type Action,
  action,
  type Context,
  creation,
  describeResource,
  iso,
  type Outcome,
  type Shown,
} from './resource.ts';
import { encryptSecret, warnWithoutKey } from './source.ts';
import { readTarget, targetFields } from './stream-target.ts';

/**
 * Seconds of lag that are marked as a problem, in addition to the time for which a file collects changes. A stream may
 * yield to others for one minute.
 */
const LATE_SECONDS = 120;

/**
 * Rights to decide where a stream sends data, and which data. A destination receives the personal data of every user, so
 * the right to manage syncs is not enough.
 */
export const SENDS = ['syncs', 'users', 'pii'] as const;

const all = ({ database }: Context, workspaceId: string) =>
  listDestinations(database.pool, { workspaceId, limit: MAX_DESTINATIONS });

const entryOf = (
  verb: AuditAction,
  { id, workspaceId }: { id: string; workspaceId: string },
  detail: Record<string, Json>,
) => ({ action: verb, subject: { kind: 'stream', id }, workspaceId, detail });

interface Change {
  action: AuditAction;
  work(tx: Connection): Promise<{ changed: boolean; detail?: Record<string, Json> }>;
}

/** Changes a stream and writes an audit entry. */
async function change(
  context: Context,
  one: DestinationRow,
  { action: verb, work }: Change,
): Promise<Outcome<DestinationRow>> {
  const { database, actor } = context;
  const more = await audited(database.pool, actor, async (tx) => {
    const { changed, detail } = await work(tx);
    return { result: detail, entries: changed ? [entryOf(verb, one, { name: one.name, ...detail })] : [] };
  });
  const updated = await findDestination(database, [one.workspaceId], one.id);
  return { ...(updated && { one: updated }), ...(more && { more }) };
}

function setState(state: 'active' | 'paused'): Action<DestinationRow, Record<never, never>>['run'] {
  const verb = state === 'active' ? 'streams.resume' : 'streams.pause';
  return (context, { one }) =>
    change(context, one, {
      action: verb,
      work: async (tx) => ({ changed: await setDestinationState(tx, one, state) }),
    });
}

/**
 * Sends an empty batch, and records the result in the audit.
 * @throws {Refusal} if the destination does not accept it
 */
async function test(context: Context, one: DestinationRow): Promise<void> {
  const record = (result: Record<string, Json>) =>
    recordAudit(context.database.pool, context.actor, [
      entryOf('streams.test', one, { name: one.name, ...result }),
    ]);
  try {
    await sendEmpty(context, one);
  } catch (error) {
    if (error instanceof Refusal) await record({ reached: false, error: error.message });
    throw error;
  }
  await record({ reached: true });
}

/** @throws {Refusal} if the destination does not accept an empty batch */
async function sendEmpty({ database, config }: Context, one: DestinationRow): Promise<void> {
  const secret = await readDestinationSecret(database, one);
  try {
    const destination = openDestination({ ...one, secret }, openingBy(config, integrationKeys(config)));
    const { signal } = new AbortController();
    try {
      if ('deliver' in destination)
        await destination.deliver({ id: `test_${newId()}`, messages: [], envelopes: [] }, signal);
      else await destination.check(signal);
    } finally {
      await destination.close();
    }
  } catch (error) {
    throw error instanceof DeliveryError ? new Refusal(`the test failed: ${error.message}`) : error;
  }
}

function problemOf({ failures, lastError, failedAt, lost }: DestinationRow): Shown {
  if (failures > 0)
    return {
      badge: `failed ${grouped(failures)} times in a row`,
      tone: 'bad',
      text: lastError ?? undefined,
      at: failedAt,
    };
  if (Number(lost) > 0)
    return { badge: `${grouped(Number(lost))} lost`, tone: 'bad', text: 'older than the log is kept' };
  return { text: 'none' };
}

const example = (words: string) => `streams ${words} crm --workspace default`;

export const streams = describeResource<DestinationRow>({
  noun: 'streams',
  one: 'stream',
  many: 'streams',
  title: 'Streams',
  sentence: 'Send the changes of a workspace to destinations, and show the progress of each stream.',
  example: 'streams list --workspace default',
  lead: 'A stream sends the changes of a workspace to another system: a webhook, a Kafka topic, or files.',
  scope: 'workspace',
  isOfOne: true,
  permit: 'syncs',
  columns: [
    { name: 'stream_id', title: 'Id', kind: 'id', value: ({ id }) => id, not: ['list'] },
    { name: 'workspace', title: 'Workspace', value: ({ workspace }) => workspace, not: ['list'] },
    { name: 'name', value: (one) => one.name },
    { name: 'kind', title: 'Kind', value: ({ kind }) => kind, not: ['list'] },
    {
      name: 'url',
      title: 'Destination',
      value: (one) => (typeof one.settings.url === 'string' ? one.settings.url : locationOf(one)),
      shown: (one) => ({ text: locationOf(one) }),
    },
    {
      name: 'state',
      title: 'State',
      value: ({ state }) => state,
      shown: ({ state }) => ({ badge: state, tone: state === 'active' ? 'good' : 'warn' }),
    },
    {
      name: 'lag_seconds',
      title: 'Behind',
      kind: 'duration',
      value: ({ lag }) => Math.round(lag),
      shown: ({ lag, gatherMs }) =>
        lag === 0
          ? { text: 'up to date' }
          : lag > LATE_SECONDS + gatherMs / 1000
            ? { seconds: lag, tone: 'bad' }
            : { seconds: lag },
    },
    { name: 'delivered', title: 'Delivered', kind: 'number', value: ({ delivered }) => delivered },
    {
      name: 'delivered_at',
      title: 'Last delivery',
      kind: 'time',
      value: ({ deliveredAt }) => iso(deliveredAt),
    },
    { name: 'failures', title: 'Problem', value: ({ failures }) => failures, shown: problemOf },
    { name: 'last_error', value: ({ lastError }) => lastError },
    {
      name: 'next_try_at',
      title: 'Next attempt',
      kind: 'time',
      value: ({ nextTryAt }) => iso(nextTryAt),
      shown: ({ nextTryAt }) => (nextTryAt === null ? { text: 'none scheduled' } : { at: nextTryAt }),
      not: ['list'],
    },
    { name: 'lost_rows', title: 'Lost rows', kind: 'number', value: ({ lost }) => lost, not: ['list'] },
    { name: 'lost_at', value: ({ lostAt }) => iso(lostAt) },
    {
      name: 'created_at',
      title: 'Created',
      kind: 'time',
      value: ({ createdAt }) => iso(createdAt),
      not: ['list'],
    },
  ],
  listing: {
    sentence: 'List the streams of a workspace, oldest first.',
    example: 'streams list --workspace default --json',
  },
  async list(context, { owners, after = '', before, newestFirst, limit }) {
    const ownStreams = await all(context, owners?.[0] ?? '');
    const ordered = newestFirst ? ownStreams.reverse() : ownStreams;
    return ordered.filter(({ id }) => id > after && (before === undefined || id < before)).slice(0, limit);
  },
  find: ({ database }, id, owners) => findDestination(database, owners ?? [], id),
  nameOf: (one) => one.name,
  ownerOf: ({ workspaceId }) => workspaceId,
  naming: {
    argument: '<stream>',
    help: 'its name or id',
    isWithin: true,
    async find(context, { text: nameOrId, owner }) {
      const ownStreams = await all(context, owner!.id);
      return ownStreams.find((one) => one.name === nameOrId) ?? ownStreams.find(({ id }) => id === nameOrId);
    },
  },
  showing: { sentence: 'Show a stream, its progress and its last error.', example: example('show') },
  empty: 'Each stream has its own position in the log, and delivers every change at least once.',
  creation: creation({
    verb: 'create',
    button: 'Create stream',
    sentence:
      'Create a stream to a webhook (its secret is shown once), a Kafka topic, or files in a folder or bucket.',
    example: 'streams create --workspace default --name crm --url https://crm.example.com/penstock',
    permit: SENDS,
    lead: 'Choose a destination. The console cannot reach the folders and buckets of sync, so create a stream to files on the command line: penstock streams create --to.',
    warning: ({ config }) => warnWithoutKey(config, 'a Kafka stream without a user'),
    done: 'Created. “Test” sends an empty batch to the destination.',
    fields: {
      name: name('name, unique among the streams of the workspace'),
      ...targetFields,
      from: optional(
        text(
          {
            label: 'Start from',
            help: 'start with the changes from this time on, as far as the log has them; beginning: the whole log, which is empty if the workspace has no stream yet (default: now)',
            value: 'time',
          },
          (given) => (given === 'beginning' ? new Date(0) : readTime(given)),
          { placeholder: '2026-11-23T08:00:00Z' },
        ),
      ),
    },
    async run({ database, config, actor }, { owner, values }) {
      const { kind, settings, credentials, newSecret, gatherMs = 0 } = await readTarget(values, config);
      const { name: called, from } = values;
      const id = newId();
      const secret = credentials ? encryptSecret(credentials, id, config) : null;
      const made = { workspaceId: owner.id, id, name: called, kind, settings, secret, gatherMs, from };
      const detail = { name: called, kind, ...(from && { from: from.toISOString() }) };
      await audited(database.pool, actor, async (tx) => {
        if (!(await createDestination(tx, made)))
          throw new Refusal(`a workspace can have at most ${MAX_DESTINATIONS} streams; remove one first`);
        return { result: undefined, entries: [entryOf('streams.create', made, detail)] };
      }).catch(refuseTaken(`this workspace already has a stream with the name '${called}'`, 'name'));
      const one = await findDestination(database, [owner.id], id);
      return {
        ...(one && { one }),
        secret: newSecret === undefined ? undefined : { name: 'secret', value: newSecret },
        note: newSecret && 'Save the secret now: it is not shown again.',
      };
    },
  }),
  actions: [
    action({
      verb: 'test',
      button: 'Test',
      sentence: 'Send an empty batch to the destination now.',
      example: example('test'),
      permit: SENDS,
      fields: {},
      isOffered: ({ kind }: DestinationRow) => kind !== 'files',
      done: 'The destination accepted an empty batch.',
      async run(context, { one }) {
        if (one.kind === 'files' && context.actor.via === 'console')
          throw new Refusal(
            `the console cannot reach folders and buckets of sync; run penstock streams test ${one.id} --workspace ${one.workspaceId}`,
          );
        await test(context, one);
        return { one, row: { stream_id: one.id, name: one.name, reached: true } };
      },
    }),
    action({
      verb: 'pause',
      button: 'Pause',
      sentence: 'Pause the delivery. No change is lost while the log has it (STREAM_LOG_DAYS).',
      example: example('pause'),
      permit: 'syncs',
      fields: {},
      isInList: true,
      isOffered: ({ state }: DestinationRow) => state === 'active',
      done: 'Paused. A delivery that is in progress continues.',
      run: setState('paused'),
    }),
    action({
      verb: 'resume',
      button: 'Resume',
      sentence: 'Resume the delivery, or retry immediately.',
      example: example('resume'),
      permit: 'syncs',
      fields: {},
      isInList: true,
      isOffered: ({ state }: DestinationRow) => state !== 'active',
      done: 'Resumed.',
      run: setState('active'),
    }),
    action({
      verb: 'replay-from',
      button: 'Replay from a time',
      sentence: 'Deliver the changes from a time on again.',
      example: `${example('replay-from')} --at 2026-11-23T08:00:00Z`,
      permit: SENDS,
      fields: {
        at: time({
          label: 'Time',
          help: 'time in ISO 8601 with offset; a time before the log delivers the whole log',
        }),
      },
      lead: 'The destination receives the changes since then a second time.',
      done: 'Changes since the time are delivered again.',
      run: (context, { one, values }) =>
        change(context, one, {
          action: 'streams.replay',
          async work(tx) {
            const changed = await replayFrom(tx, one, values.at);
            return { changed, detail: { from: values.at.toISOString() } };
          },
        }),
    }),
    action({
      verb: 'remove',
      button: 'Remove stream',
      sentence: 'Remove a stream. Undelivered changes are not delivered.',
      example: example('remove'),
      permit: SENDS,
      fields: {},
      lead: 'Undelivered changes are not delivered.',
      isDanger: true,
      confirm: (one: DestinationRow) => one.name,
      done: 'Stream removed.',
      async run(context, { one }) {
        await change(context, one, {
          action: 'streams.remove',
          work: async (tx) => ({ changed: await removeDestination(tx, one) }),
        });
        return { row: { stream_id: one.id, name: one.name, removed: true } };
      },
    }),
  ],
  ownerActions: [
    creation({
      verb: 'erase',
      button: 'Erase deleted users now',
      sentence: 'Erase deleted users from the log of streams now. A worker does this within an hour.',
      example: 'streams erase --workspace default',
      permit: 'change',
      fields: {},
      lead: 'A worker erases deleted users from the log of streams within an hour. The button starts the erasure immediately.',
      done: 'The erasure has started. A worker finishes it in the background.',
      async run({ database, actor }, { owner }) {
        // The audit entry is written first, because an erasure cannot be undone.
        const entry = { action: 'streams.erase', subject: { kind: 'workspace', id: owner.id } } as const;
        await recordAudit(database.pool, actor, [{ ...entry, workspaceId: owner.id, detail: {} }]);
        // A pass over a large log takes longer than a request of the console may take.
        if (actor.via === 'console') await beginErasurePass(database.pool, owner.id, 0);
        else await eraseDeletedFromLog(database.pool, owner.id);
        return { row: { workspace: owner.name, state: 'erased' } };
      },
    }),
  ],
});
