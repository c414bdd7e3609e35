import { validate } from 'uuid';
import { describe, expect, test } from 'vitest';
import { type AcceptedObject, requestIndexesOf } from '../../src/jobs/envelope.ts';
import { type LaneEntry, laneOf, tagIn, tagOf } from '../../src/queue/lanes.ts';
import { envelopesOf, pack } from '../../src/queue/pack.ts';
import {
  bridge,
  deletion,
  event,
  LANES,
  request,
  userOf,
  workspaceId,
  workspaceOfHome,
} from './named-objects.ts';

const MANY = 1000;

/** Lane, lanes of the fence, and ids of the objects of each entry. */
function outline(entries: LaneEntry[]) {
  return entries.map(({ lane, envelope }) => ({
    lane,
    ...(envelope.fence && { fence: envelope.fence.lanes }),
    objects: envelope.objects.map(({ id }) => id),
  }));
}

const idsOf = (...objects: { id: string }[]) => objects.map(({ id }) => id);

describe('G3: an object with users of two lanes', () => {
  test('is only in the home lane and in both lanes, and is ordered with all their objects', () => {
    const [one, two, three, four, five] = [event(1), event(2), bridge(3, 1), event(3), event(1)];
    const entries = pack([request(one, two, three), request(four, five)], LANES, MANY);
    const fence = [0, 1, 3];
    expect(outline(entries)).toEqual([
      { lane: 0, fence, objects: idsOf(one, three, four, five) },
      { lane: 1, fence, objects: [] },
      { lane: 3, fence, objects: [] },
      { lane: 2, objects: idsOf(two) },
    ]);
    const [carrier, mark] = entries as [LaneEntry, LaneEntry];
    expect(carrier.envelope.fence).toEqual({ id: carrier.id, lanes: fence, workspace_id: workspaceId });
    expect(mark.envelope.fence).toEqual(carrier.envelope.fence);
    expect(mark.envelope.requests).toEqual([]);
    expect(new Set(entries.map(({ id }) => id)).size).toBe(entries.length);
    expect(entries.every(({ id }) => validate(id))).toBe(true);
    expect(carrier.envelope.requests).toHaveLength(2);
    expect(requestIndexesOf(carrier.envelope)).toEqual([0, 0, 1, 1]);
  });

  test('shares one fence with all such objects of the flush', () => {
    const [one, two, three] = [bridge(0, 1), bridge(3, 2), bridge(2, 1)];
    expect(outline(pack([request(one), request(two), request(three)], LANES, MANY))).toEqual([
      { lane: 0, fence: [0, 1, 2, 3], objects: idsOf(one, two, three) },
      ...[1, 2, 3].map((lane) => ({ lane, fence: [0, 1, 2, 3], objects: [] })),
    ]);
  });

  test('has a fence for its workspace alone, in the home lane of the workspace', () => {
    const other = workspaceOfHome(2);
    const third = workspaceOfHome(0);
    const of = (id: string, ...objects: AcceptedObject[]) => {
      const made = request(...objects);
      return { ...made, request: { ...made.request, workspace_id: id } };
    };
    const [one, two, three, four] = [bridge(0, 1), deletion(1), event(1), event(1)];
    const entries = pack([request(one), of(other, two), of(third, three), request(four)], LANES, MANY);
    const thirdLane = laneOf(third, `x:${userOf(1)}`, LANES);
    expect(outline(entries)).toEqual([
      { lane: 0, fence: [0, 1], objects: idsOf(one, four) },
      { lane: 1, fence: [0, 1], objects: [] },
      { lane: 2, fence: [2, 0, 1, 3], objects: idsOf(two) },
      ...[0, 1, 3].map((lane) => ({ lane, fence: [2, 0, 1, 3], objects: [] })),
      { lane: thirdLane, objects: idsOf(three) },
    ]);
    const owners = [workspaceId, workspaceId, other, other, other, other];
    expect(entries.slice(0, 6).map(({ envelope }) => envelope.fence?.workspace_id)).toEqual(owners);
    expect(entries.map(({ id }) => tagIn(id))).toEqual([...owners, third].map(tagOf));
  });

  test('creates consecutive fences if there are more objects than an envelope may have', () => {
    const objects = [bridge(0, 2), ...Array.from({ length: 6 }, (_, index) => event(index % 3))];
    const entries = pack([request(...objects)], LANES, 2);
    const fences = entries.filter(({ envelope }) => envelope.fence);
    expect(fences.map(({ lane }) => lane)).toEqual([0, 2, 0, 2, 0, 2]);
    expect(new Set(fences.map(({ envelope }) => envelope.fence!.id)).size).toBe(3);
    const wanted = objects.filter((_, index) => index === 0 || (index - 1) % 3 !== 1);
    expect(fences.flatMap(({ envelope }) => idsOf(...envelope.objects))).toEqual(idsOf(...wanted));
  });

  test('creates several fences if there are more bytes than an envelope may have', () => {
    const large = [bridge(0, 2), event(2), event(0)].map((object) => ({
      ...request(object),
      bytes: 3_000_000,
    }));
    expect(pack(large, LANES, MANY).map(({ lane }) => lane)).toEqual([0, 2, 0, 2, 0, 2]);
  });

  test('needs no fence if both users are in one lane', () => {
    const [one, two] = [bridge(2, 2), event(1)];
    expect(outline(pack([request(one, two)], LANES, MANY))).toEqual([
      { lane: 2, objects: idsOf(one) },
      { lane: 1, objects: idsOf(two) },
    ]);
  });
});

test('G3: a delete is added to all lanes', () => {
  const [one, two] = [event(3), deletion(2)];
  expect(outline(pack([request(one, two)], LANES, MANY))).toEqual([
    { lane: 0, fence: [0, 1, 2, 3], objects: idsOf(one, two) },
    ...[1, 2, 3].map((lane) => ({ lane, fence: [0, 1, 2, 3], objects: [] })),
  ]);
});

test('objects with one lane each need no fence', () => {
  const entries = pack([request(event(0), event(1), event(2), event(1))], LANES, MANY);
  expect(entries.map(({ lane, envelope }) => [lane, envelope.fence])).toEqual([
    [0, undefined],
    [1, undefined],
    [2, undefined],
  ]);
});

test('an installation with one lane needs no fences', () => {
  const objects = [bridge(0, 1), deletion(2), event(3)];
  expect(outline(pack([request(...objects)], 1, MANY))).toEqual([{ lane: 0, objects: idsOf(...objects) }]);
});

test('the envelopes of a request are those with its objects, without the marks of fences', () => {
  const [one, two] = [request(event(0), bridge(3, 1), event(2)), request(event(2))];
  const entries = pack([one, two], LANES, MANY);
  const holds = (id: string) =>
    entries
      .filter(({ envelope }) => envelope.objects.some((object) => object.id === id))
      .map((entry) => entry.id);
  expect(new Set(envelopesOf(one.request, entries))).toEqual(
    new Set(one.objects.flatMap(({ id }) => holds(id))),
  );
  expect(envelopesOf(two.request, entries)).toEqual(holds(two.objects[0]!.id));
});
