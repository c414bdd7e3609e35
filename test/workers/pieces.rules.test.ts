import fc from 'fast-check';
import { v7 as uuidv7 } from 'uuid';
import { describe, expect, test } from 'vitest';
import type { Envelope } from '../../src/jobs/envelope.ts';
import { type HandedIn, inPieces, takePieces } from '../../workers/batch/handed-in.ts';

const [a, b, c] = [uuidv7(), uuidv7(), uuidv7()];

/** An envelope of these workspaces, as a lane hands it in. */
function piece(workspaces: string[], objects = 1, lane = 0): HandedIn {
  const requests = workspaces.map((workspace_id) => ({ request_id: uuidv7(), workspace_id }));
  const envelope = { requests, objects: Array.from({ length: objects }) } as unknown as Envelope;
  return { deliveries: [{ id: uuidv7(), lane, envelope }], done() {} };
}

/** What each is about: workspaces, each in its lane. */
const turnsIn = (held: HandedIn[]) =>
  held.map(({ deliveries }) =>
    deliveries.flatMap(({ lane, envelope }) => envelope.requests.map((one) => `${lane} ${one.workspace_id}`)),
  );

describe('G3: what a transaction takes of what lanes have handed in', () => {
  test('is never a late piece whose neighbour waits before it', () => {
    const [first, before, shared] = [piece([c], 20), piece([b]), piece([a, b])];
    const { taken, left } = takePieces([first, before, shared], { late: new Set([a]), most: 20 });
    expect(taken).toEqual([first]);
    expect(left).toEqual([before, shared]);
  });

  test('is the beginning of what each workspace has in each lane, and something whenever there is something', () => {
    const workspaces = fc.subarray([a, b, c], { minLength: 1 });
    const held = fc.array(
      fc.tuple(workspaces, fc.integer({ min: 0, max: 3 }), fc.integer({ min: 0, max: 1 })),
      { minLength: 1, maxLength: 8 },
    );
    fc.assert(
      fc.property(held, fc.subarray([a, b, c]), fc.integer({ min: 1, max: 6 }), (pieces, late, most) => {
        const all = pieces.map((one) => piece(...one));
        const { taken, left } = takePieces(all, { late: new Set(late), most });
        expect(taken.length).toBeGreaterThan(0);
        const order = [...taken, ...left];
        expect([...order].sort(byPlace(all))).toEqual(all);
        for (const turn of new Set(turnsIn(all).flat())) {
          const own = (some: HandedIn[]) => some.filter((one) => turnsIn([one])[0]!.includes(turn));
          expect(own(order)).toEqual(own(all));
        }
      }),
    );
  });

  test('an envelope that waits from take to take stays what it is', () => {
    const held = piece([a]);
    expect(inPieces(held)).toEqual([held]);
    expect(inPieces(held)[0]).toBe(held);
  });
});

function byPlace(all: HandedIn[]) {
  return (one: HandedIn, other: HandedIn) => all.indexOf(one) - all.indexOf(other);
}
