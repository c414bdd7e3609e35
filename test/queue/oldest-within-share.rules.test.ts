import { v7 as uuidv7 } from 'uuid';
import { expect, test } from 'vitest';
import type { LaneStore, StoredEnvelope } from '../../src/queue/lane-store.ts';
import { envelopeId } from '../../src/queue/lanes.ts';
import { oldestWithinShare } from '../../src/queue/oldest-within-share.ts';

const [noisy, quiet, other] = [uuidv7(), uuidv7(), uuidv7()];

/**
 * Envelopes of these workspaces in the order of their lane, each added a second after the previous one. The time is
 * 100 s.
 */
function sceneOf(...owners: string[][]) {
  const envelopes = owners.map((workspaces, position): StoredEnvelope => {
    const requests = workspaces.map((workspace_id) => ({
      ...{ request_id: uuidv7(), workspace_id, accepted_at: 'now', count: 1 },
    }));
    return { id: envelopeId(workspaces), timestamp: position * 1000, data: { requests, objects: [] } };
  });
  const store: Pick<LaneStore, 'head' | 'sample' | 'read'> = {
    head: async () => envelopes.map(({ id }) => id),
    sample: async () => ({ waiting: 0, envelopes: [] }),
    read: async (_, ids) => ids.map((id) => envelopes.find((one) => one.id === id)),
  };
  const [first] = envelopes;
  return oldestWithinShare(store, 0, { id: first!.id, timestamp: 0, age: 100_000 });
}

const backlog = Array.from({ length: 50 }, () => [noisy]);

test('the backlog of one workspace is skipped, and the age of the envelope after it is found', async () => {
  expect(await sceneOf(...backlog, [quiet], ...backlog)).toMatchObject({ timestamp: 50_000, age: 50_000 });
});

test("an envelope shared with the backlog's workspace counts as part of the backlog", async () => {
  expect(await sceneOf(...backlog, [quiet, noisy], ...backlog)).toBeUndefined();
  expect(await sceneOf(...backlog, [quiet, other], ...backlog)).toMatchObject({ age: 50_000 });
});

test('no age is found in a lane that holds only the backlog of one workspace', async () => {
  expect(await sceneOf(...backlog)).toBeUndefined();
});

test('the oldest envelope itself is found if its workspace has little in the lane', async () => {
  expect(await sceneOf([quiet], ...backlog)).toMatchObject({ timestamp: 0, age: 100_000 });
});
