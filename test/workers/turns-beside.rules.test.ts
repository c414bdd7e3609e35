import { describe, expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { createWay, whoMayOvertake } from '../../workers/batch/fairness.ts';
import type { Delivery } from '../../workers/batch/open.ts';
import { createLooks } from '../../workers/lane/overtaking.ts';

/** An envelope of these workspaces. */
function of(workspaces: string | string[], objects: number, lane = 0): Delivery {
  const requests = [workspaces].flat().map((workspace_id) => ({
    ...{ request_id: crypto.randomUUID(), workspace_id, accepted_at: '2026-01-02T03:04:05Z' },
  }));
  const some = Array.from({ length: objects }, () => ({}) as AcceptedObject);
  return { id: crypto.randomUUID(), lane, envelope: { requests, objects: some } };
}

const handedIn = (...deliveries: Delivery[]) => ({ deliveries, done: () => {} });

describe('who may overtake the transactions under way', () => {
  const [a, b, c] = [of('quiet', 1, 1), of('other', 10, 2), of('flood', 1, 3)].map((one) => handedIn(one));
  const free = [a!, b!, c!];
  const late = new Set<string>();

  test('others than the workspaces of a large one, in whatever lane they wait', () => {
    expect(whoMayOvertake(free, { inWork: new Set([[of('flood', 4000)]]), late })).toEqual([a, b]);
  });

  test('nobody while all are small: what comes meanwhile shares the next one', () => {
    expect(whoMayOvertake(free, { inWork: new Set([[of('x', 50)], [of('y', 149)]]), late })).toEqual([]);
  });

  test('not who has something in any of them, large or not', () => {
    const inWork = new Set([[of('flood', 4000)], [of(['quiet', 'x'], 2)]]);
    expect(whoMayOvertake(free, { inWork, late })).toEqual([b]);
  });

  test('not who shares an envelope with one of theirs', () => {
    const shared = handedIn(of(['quiet', 'flood'], 2));
    expect(whoMayOvertake([shared, b!], { inWork: new Set([[of('flood', 4000)]]), late })).toEqual([b]);
  });

  test('G3: not who comes behind one of theirs that waits in the same lane', () => {
    const inWork = new Set([[of('flood', 4000)]]);
    const shared = handedIn(of(['quiet', 'flood'], 2, 1));
    const behind = [handedIn(of('quiet', 1, 1)), handedIn(of('other', 1, 1)), handedIn(of('quiet', 1, 2))];
    expect(whoMayOvertake([shared, ...behind], { inWork, late })).toEqual(behind.slice(1));
    const tried = { ...handedIn(of('quiet', 2, 1)), inPlace: true };
    expect(whoMayOvertake([tried, ...behind], { inWork, late })).toEqual(behind.slice(1));
    const much = handedIn(of('quiet', 300, 1));
    expect(whoMayOvertake([much, ...behind], { inWork, late })).toEqual([]);
  });

  test('G8: not whose time was over, who has a part of its own', () => {
    const inWork = new Set([[of('flood', 4000)]]);
    expect(whoMayOvertake(free, { inWork, late: new Set(['other']) })).toEqual([a]);
  });

  test('no more than is little together: the rest is worth a transaction of its own', () => {
    const many = Array.from({ length: 30 }, (_, number) => handedIn(of(`w${number}`, 10, number)));
    expect(whoMayOvertake(many, { inWork: new Set([[of('flood', 4000)]]), late })).toHaveLength(19);
  });
});

describe('a large transaction', () => {
  test('goes on at once while nobody overtakes it, and rests until those who do are done', async () => {
    const way = createWay();
    expect(way.give()).toBeUndefined();
    const steps: string[] = [];
    let end = () => {};
    const overtaking = way.during(() => new Promise<void>((resolve) => (end = resolve)));
    const resting = way.give()!.then(() => steps.push('goes on'));
    await new Promise(setImmediate);
    steps.push('done');
    end();
    await Promise.all([overtaking, resting]);
    expect(steps).toEqual(['done', 'goes on']);
    expect(way.give()).toBeUndefined();
  });

  test('goes on when who overtakes it fails, or is stuck', async () => {
    const way = createWay();
    const failing = way.during(() => Promise.reject(new Error('no')));
    const resting = way.give();
    await expect(failing).rejects.toThrow('no');
    await resting;
    void way.during(() => new Promise(() => {}));
    await way.give();
  });
});

describe('a lane looks who may overtake', () => {
  const scene = () => {
    let now = 0;
    const looks = createLooks(() => now);
    return {
      looks,
      /** Looks when it is due. @returns how long that took */
      next(hasFound: boolean): number {
        const wait = looks.wait();
        now += wait;
        looks.note(hasFound);
        return wait;
      },
      pass: (ms: number) => (now += ms),
    };
  };

  test('a pause goes on over the ends of transactions, however short these are', () => {
    const { looks, next, pass } = scene();
    for (let times = 0; times < 8; times++) next(false);
    expect(looks.wait()).toBe(96);
    pass(40);
    expect(looks.wait()).toBe(56);
    pass(60);
    expect(looks.wait()).toBe(0);
  });

  test('seldom where a workspace is alone, and often for as long as others send as well', () => {
    const { next, pass } = scene();
    expect([next(false), next(false), next(false), next(false)]).toEqual([0, 6, 12, 24]);
    next(true);
    expect([next(false), next(false), next(false), next(false), next(false)]).toEqual([3, 6, 12, 24, 24]);
    pass(10_000);
    next(false);
    expect([next(false), next(false), next(false)]).toEqual([48, 96, 96]);
  });
});
