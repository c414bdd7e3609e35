import fc from 'fast-check';
import type pg from 'pg';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ApiError } from '../../src/errors.ts';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { emailStatus } from '../../src/operations/email.status.ts';
import type { Caller, QueuedOperation } from '../../src/operations/operation.ts';
import { subscriptionStatusSetV2 } from '../../src/operations/subscription.status.set.v2.ts';
import { usersTrack } from '../../src/operations/users.track.ts';
import { toProfileId } from '../../src/profile/identifier.ts';
import type { Json } from '../../src/profile/json.ts';
import { createGroupCommit } from '../../src/queue/enqueue.ts';
import type { LaneEntry } from '../../src/queue/lanes.ts';
import { openPool } from '../../src/store/database.ts';
import { callerOf } from '../operations/caller.ts';
import { createDatabase } from '../setup/fixtures.ts';
import { lengthOf } from '../setup/length.ts';
import { createGroup, createWorkspace } from '../setup/workspace.ts';
import { applyBatch } from '../workers/apply-batch.ts';
import { applyInParts, makeTriggers } from '../workers/batch.ts';
import { canonicalModel, canonicalStore } from './canonical.ts';
import type { Wire } from './card.ts';
import { SequentialModel } from './sequential-model.ts';
import { groups, POISON, serviceIds, type TrackRequest, trackRequest } from './track-arbitrary.ts';

/** Sequences per run of the test, and the time that they may take, in milliseconds. */
const SEQUENCES = lengthOf({ short: 150, long: 4000 });
const PATIENCE = lengthOf({ short: 30_000, long: 600_000 });

const track = usersTrack('service_id');
const serviceIdsInUse = [serviceIds.withExternalId, serviceIds.withoutExternalId];

let pool: pg.Pool;
beforeAll(async () => {
  const { url } = await createDatabase();
  pool = openPool(url, 10, { session: { synchronous_commit: 'off' } });
  await makeTriggers(pool, [
    "create function refuse() returns trigger language plpgsql as $$ begin raise exception 'refused'; end $$",
    `create trigger refuse before insert on events
      for each row when (new.name = '${POISON}') execute function refuse()`,
    `create trigger refuse before insert or update on profiles
      for each row when (new.custom_attributes ? '${POISON}') execute function refuse()`,
  ]);
});
afterAll(() => pool.end());

/** Division of requests into envelopes and of envelopes into batches; each list is used cyclically. */
interface Cuts {
  requestsPerFlush: number[];
  envelopesPerBatch: number[];
  objectsPerEnvelope: number;
  /** Batches that are delivered twice. */
  deliveredAgain: boolean[];
  /** Batches that are applied in parts. */
  inParts: boolean[];
}

const sizes = fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1, maxLength: 4 });
const cuts: fc.Arbitrary<Cuts> = fc.record({
  requestsPerFlush: sizes,
  envelopesPerBatch: sizes,
  objectsPerEnvelope: fc.constantFrom(1, 3, 1000),
  deliveredAgain: fc.array(fc.boolean(), { minLength: 1, maxLength: 3 }),
  inParts: fc.array(fc.boolean(), { minLength: 1, maxLength: 3 }),
});

test('requests have the same result in any batches, parts and repetitions as one by one', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(trackRequest, { minLength: 1, maxLength: 12, size: 'max' }),
      cuts,
      async (requests, how) => {
        const { workspaceId, model, groupIds } = await emptyWorkspace();
        const accepted = requests.map((request) =>
          accept(named(request, groupIds), model, { workspaceId, groupIds }),
        );
        await deliver(accepted, workspaceId, how);
        expect(await canonicalStore(pool, workspaceId, serviceIdsInUse)).toEqual(canonicalModel(model));
      },
    ),
    { numRuns: SEQUENCES, interruptAfterTimeLimit: PATIENCE, markInterruptAsFailure: false },
  );
});

/**
 * Creates a workspace with three groups and two users, one of them without an external id, in store and
 * model.
 */
async function emptyWorkspace() {
  const { id: workspaceId } = await createWorkspace(pool, uuidv7());
  const groupIds = {
    [groups.email]: await createGroup(pool, workspaceId, 'email'),
    [groups.sms]: await createGroup(pool, workspaceId, 'sms'),
    [groups.archived]: await createGroup(pool, workspaceId, 'email', { name: 'archived', archived: true }),
    [groups.unknown]: uuidv7(),
  };
  const model = new SequentialModel(
    new Map([
      [groupIds[groups.email]!, 'email'],
      [groupIds[groups.sms]!, 'sms'],
      [groupIds[groups.archived]!, 'archived'],
    ]),
  );
  for (const [serviceId, externalId] of [
    [serviceIdsInUse[0]!, 'u4'],
    [serviceIdsInUse[1]!, undefined],
  ] as const) {
    model.seed(serviceId, externalId);
    await pool.query(
      'insert into profiles (workspace_id, id, external_id, created_at, updated_at) values ($1, $2, $3, now(), now())',
      [workspaceId, toProfileId(serviceId), externalId],
    );
  }
  return { workspaceId, model, groupIds };
}

/** Returns the request with group ids in place of names. */
function named(request: TrackRequest, groupIds: Record<string, string>): TrackRequest {
  return JSON.parse(
    JSON.stringify(request, (name, value) => (name === 'subscription_group_id' ? groupIds[value] : value)),
  );
}

/** Plans a request as web does, and passes the accepted and applicable objects to the model. */
function accept(
  request: TrackRequest,
  model: SequentialModel,
  { workspaceId, groupIds }: { workspaceId: string; groupIds: Record<string, string> },
): AcceptedObject[] {
  const hasGroup = (id: string) => id !== groupIds[groups.unknown];
  const channelOf = (id: string) =>
    hasGroup(id) ? (id === groupIds[groups.sms] ? ('sms' as const) : ('email' as const)) : undefined;
  const caller = callerOf(workspaceId, { hasGroup, channelOf });
  const objects = planned(track, caller, structuredClone(request) as unknown as Record<string, Json>);
  const objectKeys = new Set(objects.map(({ kind, index }) => `${kind} ${index}`));
  for (const kind of ['attributes', 'events', 'purchases'] as const) {
    for (const [index, object] of request[kind].entries()) {
      if (objectKeys.has(`${kind} ${index}`) && !isPoison(object)) model.apply(kind, object);
    }
  }
  for (const setting of request.settings) {
    const set =
      'email' in setting
        ? planned(emailStatus(), caller, setting)
        : planned(subscriptionStatusSetV2(), caller, { subscription_groups: [setting] });
    if (set.length > 0) model.set(setting);
    objects.push(...set);
  }
  return objects;
}

/** Returns the planned objects; empty if the request is rejected. */
function planned(operation: QueuedOperation, caller: Caller, body: Record<string, Json>): AcceptedObject[] {
  try {
    return operation.plan(caller, body).objects;
  } catch (error) {
    if (error instanceof ApiError) return [];
    throw error;
  }
}

function isPoison(object: Wire): boolean {
  return object.name === POISON || object[POISON] === true;
}

async function deliver(requests: AcceptedObject[][], workspaceId: string, how: Cuts): Promise<void> {
  const entries: LaneEntry[] = [];
  const producer = { add: async (added: LaneEntry[]) => void entries.push(...added) };
  const options = {
    lanes: 1,
    maxEnvelopeObjects: how.objectsPerEnvelope,
    maxPendingObjects: 10_000,
    maxPendingBytes: 1e9,
    backlog: () => 0,
  };
  const { enqueue } = createGroupCommit(producer, options);
  for (const flush of cut(requests, how.requestsPerFlush)) {
    await Promise.all(
      flush.map((objects) =>
        enqueue(
          { request_id: uuidv7(), workspace_id: workspaceId, accepted_at: new Date().toISOString() },
          objects,
          { bytes: 0 },
        ),
      ),
    );
  }
  const stored: LaneEntry[] = JSON.parse(JSON.stringify(entries));
  for (const [index, batch] of cut(stored, how.envelopesPerBatch).entries()) {
    const isInParts = how.inParts[index % how.inParts.length];
    const run = () => (isInParts ? applyInParts(pool, batch) : applyBatch(pool, batch));
    await run();
    if (how.deliveredAgain[index % how.deliveredAgain.length]) await run();
  }
}

/** Cuts the list into consecutive pieces of these lengths, used cyclically. */
function cut<T>(list: T[], lengths: number[]): T[][] {
  const pieces: T[][] = [];
  for (let start = 0; start < list.length; ) {
    const length = lengths[pieces.length % lengths.length]!;
    pieces.push(list.slice(start, start + length));
    start += length;
  }
  return pieces;
}
