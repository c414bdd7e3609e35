import { describe, expect, test } from 'vitest';
import { watchProcessorWait } from '../../src/processes/surroundings.ts';
import { createYielding } from '../../workers/streams/context.ts';

const staying = new AbortController().signal;

/** A sync process on a machine that the test has in hand. */
function scene({ mostMs = 60_000 } = {}) {
  const machine = { areWorkersBehind: true, wait: 0.9 as number | undefined, age: 0 };
  const waits: number[] = [];
  const yielding = createYielding({
    areWorkersBehind: () => machine.areWorkersBehind,
    processorWait: () => machine.wait,
    mostMs,
    pageEveryMs: 300,
    onWait: (milliseconds) => waits.push(milliseconds),
  });
  const age = () => machine.age;
  return { machine, waits, yielding, age };
}

/** Whether it waits still, after all that is due has been done. */
async function waitsStill(work: Promise<void>): Promise<boolean> {
  let isDone = false;
  void work.then(() => {
    isDone = true;
  });
  await new Promise((resolve) => setImmediate(resolve));
  return !isDone;
}

describe('a sync process on a machine without time to spare, while workers are behind,', () => {
  test.each([
    ['workers are behind no more', { areWorkersBehind: false }],
    ['there is processor to spare', { wait: 0.1 }],
    ['it is as old as it may be', { age: 240_000 }],
  ])('begins no file until %s', async (_until, change) => {
    const { machine, waits, yielding, age } = scene();
    const work = yielding.file(age, 240_000, staying);
    expect(await waitsStill(work)).toBe(true);
    machine.age = 239_000;
    Object.assign(machine, change);
    await work;
    expect(waits).toHaveLength(1);
  });

  test('gives a destination a page all the same, after so many milliseconds at the latest', async () => {
    const { waits, yielding, age } = scene();
    await yielding.page(age, staying);
    // The next moment that all destinations have, and what a busy machine takes to see it.
    expect(waits[0]).toBeLessThan(2000);
    expect(yielding.isNeeded()).toBe(true);
  });

  test('makes a destination wait for nothing that is as far behind as it may be', async () => {
    const { machine, waits, yielding, age } = scene();
    machine.age = 60_000;
    await yielding.page(age, staying);
    expect(waits).toEqual([]);
  });

  test('leaves when it is told to', async () => {
    const { yielding, age } = scene();
    const leaving = new AbortController();
    const work = yielding.file(age, 240_000, leaving.signal);
    leaving.abort();
    await work;
  });
});

describe('nobody gives way', () => {
  test.each([
    ['to workers that are not behind', { areWorkersBehind: false }, {}],
    ['with processor to spare', { wait: 0.1 }, {}],
    ['who is told not to', {}, { mostMs: 0 }],
  ])('%s', async (_to, change, options) => {
    const { machine, waits, yielding, age } = scene(options);
    Object.assign(machine, change);
    await yielding.page(age, staying);
    await yielding.file(age, 240_000, staying);
    expect(waits).toEqual([]);
  });

  test('where the system tells nothing of processors, the lanes alone decide', () => {
    const { machine, yielding } = scene();
    machine.wait = undefined;
    expect(yielding.isNeeded()).toBe(true);
    machine.areWorkersBehind = false;
    expect(yielding.isNeeded()).toBe(false);
  });
});

test('the wait for a processor is the part of the time in which others ran, of late', async () => {
  let figures = '1000 1000 1\n';
  const wait = watchProcessorWait(() => figures);
  expect(wait.share()).toBeUndefined();
  figures = '2000 4000 2\n';
  wait.look();
  expect(wait.share()).toBe(0.75);
  for (let look = 0; look < 20; look++) {
    figures = `${3000 + 1000 * look} 4000 3\n`;
    wait.look();
  }
  expect(wait.share()).toBeLessThan(0.01);
  await wait.stop();
});

test('where the system does not tell, nothing is known', async () => {
  const wait = watchProcessorWait(() => {
    throw new Error('ENOENT');
  });
  wait.look();
  expect(wait.share()).toBeUndefined();
  await wait.stop();
});
