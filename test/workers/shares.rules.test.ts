import { NIL, v7 as uuidv7 } from 'uuid';
import { expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { type Delivery, open, tracesOf } from '../../workers/batch/open.ts';
import { joinResults, sharesOf } from '../../workers/batch/shares.ts';

const [first, second] = ['01990000-0000-7000-8000-000000000001', '01990000-0000-7000-8000-000000000002'];
const accepted_at = new Date().toISOString();

function event(user: string): AcceptedObject {
  const time = '2026-01-02T03:04:05.000Z';
  return { id: uuidv7(), index: 0, kind: 'events', identifier: { external_id: user }, name: 'visited', time };
}

/** Creates an envelope with one request of two objects for each of these workspaces. */
function envelopeOf(...owners: string[]): Delivery {
  const requests = owners.map((workspace_id) => ({
    ...{ request_id: uuidv7(), workspace_id, accepted_at, count: 2 },
  }));
  return {
    ...{ id: uuidv7(), lane: 0 },
    envelope: { requests, objects: owners.flatMap((owner) => [event(owner), event(owner)]) },
  };
}

test('G7: each object of an envelope is opened once, in the share of its workspace, at its place', () => {
  const shared = envelopeOf(second, first, second);
  const shares = sharesOf([shared, envelopeOf(first)]);
  expect(shares.map(({ workspaceId, deliveries }) => [workspaceId, deliveries.length])).toEqual([
    [second, 1],
    [first, 2],
  ]);
  const opened = shares.map(({ deliveries }) => open(deliveries).items);
  for (const [position, items] of opened.entries())
    expect(new Set(items.map(({ workspaceId }) => workspaceId))).toEqual(
      new Set([[second, first][position]]),
    );
  expect(opened[0]!.map(({ index }) => index)).toEqual([0, 1, 4, 5]);
});

test('G2: the id of a share is independent of the batch and differs from the envelope id', () => {
  const shared = envelopeOf(second, first);
  const idsIn = (deliveries: Delivery[]) =>
    sharesOf(deliveries).flatMap((share) =>
      share.deliveries.filter(({ share: of }) => of?.of === shared.id).map(({ id }) => id),
    );
  const ids = idsIn([shared]);
  expect(ids).toHaveLength(2);
  expect(ids).not.toContain(shared.id);
  for (const id of ids) expect(id.slice(0, 24)).toBe(shared.id.slice(0, 24));
  expect(idsIn([envelopeOf(second), envelopeOf(first), shared])).toEqual(ids);
  const own = envelopeOf(first);
  expect(idsIn([own])).toEqual([]);
  expect(sharesOf([own])[0]!.deliveries[0]!.id).toBe(own.id);
});

test('the ledger traces of a share contain only the requests of its workspace', () => {
  const shared = envelopeOf(first, second);
  const traces = sharesOf([shared]).map(({ deliveries }) => tracesOf(deliveries[0]!)!);
  const bytesOf = (uuid: string) => Buffer.from(uuid.replaceAll('-', ''), 'hex');
  for (const [offset, { request_id }] of shared.envelope.requests.entries())
    expect(traces.map((one) => one.includes(bytesOf(request_id)))).toEqual([offset === 0, offset === 1]);
});

test('an unreadable envelope becomes a share of NIL_UUID', () => {
  const broken = { id: uuidv7(), lane: 0, envelope: 'nonsense' } as unknown as Delivery;
  expect(sharesOf([broken]).map(({ workspaceId }) => workspaceId)).toEqual([NIL]);
  expect(open(sharesOf([broken])[0]!.deliveries).deadLetters).toHaveLength(1);
});

test('the remaining objects of a share are reported under the id of its envelope', () => {
  const shared = envelopeOf(first, second);
  const deliveries = sharesOf([shared]).flatMap((share) => share.deliveries);
  const applied = {
    ...{ kind: 'applied' as const, objects: 1, deadLetters: [], leavesTombstones: false, seconds: 1 },
    used: {
      objects: new Map<string, number>(),
      loaded: new Map<string, number>(),
      isCut: false,
      nextRound: 2,
    },
  };
  const left = new Map([[deliveries[0]!.id, new Map([[first, 2]])]]);
  expect(joinResults(deliveries, [{ ...applied, left }, applied])).toMatchObject({
    objects: 2,
    left: new Map([[shared.id, new Map([[first, 2]])]]),
  });
  expect(joinResults(deliveries, [{ kind: 'skipped' }, { kind: 'skipped' }])).toEqual({ kind: 'skipped' });
});
