import { describe, expect, test } from 'vitest';
import { watchProcessorWait } from '../../src/processes/surroundings.ts';
import { createYielding } from '../../workers/streams/yielding.ts';

const staying = new AbortController().signal;

/** Creates a sync process on a machine that the test controls. */
function scene({ maxMs = 60_000 } = {}) {
  const machine = { areWorkersBehind: true, wait: 0.9 as number | undefined, age: 0 };
  const waits: number[] = [];
  const yielding = createYielding({
    areWorkersBehind: () => machine.areWorkersBehind,
    processorWait: () => machine.wait,
    maxMs,
    pageEveryMs: 300,
    onWait: (milliseconds) => waits.push(milliseconds),
  });
  const age = () => machine.age;
  return { machine, waits, yielding, age };
}

/** Checks whether the work is still waiting after all due callbacks. */
async function waitsStill(work: Promise<void>): Promise<boolean> {
  let isDone = false;
  void work.then(() => {
    isDone = true;
  });
  await new Promise((resolve) => setImmediate(resolve));
  return !isDone;
}

describe('a sync process on a busy machine with a backlog of workers', () => {
  test.each([
    ['the workers have no backlog', { areWorkersBehind: false }],
    ['the machine has idle processors', { wait: 0.1 }],
    ['the file has reached its maximum age', { age: 240_000 }],
  ])('starts no file until %s', async (_until, change) => {
    const { machine, waits, yielding, age } = scene();
    const work = yielding.file(age, 240_000, staying);
    expect(await waitsStill(work)).toBe(true);
    machine.age = 239_000;
    Object.assign(machine, change);
    await work;
    expect(waits).toHaveLength(1);
  });

  test('still sends a page per destination, after a bounded wait', async () => {
    const { waits, yielding, age } = scene();
    await yielding.page(age, staying);
    // The next common moment of all destinations, plus time for a busy machine to notice it.
    expect(waits[0]).toBeLessThan(2000);
    expect(yielding.isNeeded()).toBe(true);
  });

  test('sends to a destination at its maximum lag without a wait', async () => {
    const { machine, waits, yielding, age } = scene();
    machine.age = 60_000;
    await yielding.page(age, staying);
    expect(waits).toEqual([]);
  });

  test('stops waiting when its signal is aborted', async () => {
    const { yielding, age } = scene();
    const leaving = new AbortController();
    const work = yielding.file(age, 240_000, leaving.signal);
    leaving.abort();
    await work;
  });
});

describe('a sync process does not yield', () => {
  test.each([
    ['if the workers have no backlog', { areWorkersBehind: false }, {}],
    ['if the machine has idle processors', { wait: 0.1 }, {}],
    ['if yielding is turned off', {}, { maxMs: 0 }],
  ])('%s', async (_to, change, options) => {
    const { machine, waits, yielding, age } = scene(options);
    Object.assign(machine, change);
    await yielding.page(age, staying);
    await yielding.file(age, 240_000, staying);
    expect(waits).toEqual([]);
  });

  test('yielding depends on the backlog alone if the system reports no processor times', () => {
    const { machine, yielding } = scene();
    machine.wait = undefined;
    expect(yielding.isNeeded()).toBe(true);
    machine.areWorkersBehind = false;
    expect(yielding.isNeeded()).toBe(false);
  });
});

test('the wait for processors is the recent share of time in which other processes ran', async () => {
  let figures = '1000 1000 1\n';
  const wait = watchProcessorWait(() => figures);
  expect(wait.share()).toBeUndefined();
  figures = '2000 4000 2\n';
  wait.sample();
  expect(wait.share()).toBe(0.75);
  for (let round = 0; round < 20; round++) {
    figures = `${3000 + 1000 * round} 4000 3\n`;
    wait.sample();
  }
  expect(wait.share()).toBeLessThan(0.01);
  await wait.stop();
});

test('the wait for processors is undefined if the system does not report it', async () => {
  const wait = watchProcessorWait(() => {
    throw new Error('ENOENT');
  });
  wait.sample();
  expect(wait.share()).toBeUndefined();
  await wait.stop();
});
