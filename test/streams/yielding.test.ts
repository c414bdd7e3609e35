import { expect, test } from 'vitest';
import { createYielding } from '../../workers/streams/yielding.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { event } from '../workers/batch.ts';
import { inFolder, streamToFiles } from './file-scene.ts';
import { startReceiver } from './receiver.ts';
import { apply, deliverStreams, soon, stream, useStore } from './scene.ts';

useStore();

/** Simulates a process that has to yield until the machine is no longer full. */
function crowded(maxMs: number) {
  const machine = { isFull: true, waited: 0 };
  const yielding = createYielding({
    areWorkersBehind: () => machine.isFull,
    processorWait: () => 1,
    maxMs,
    onWait: (milliseconds) => {
      machine.waited += milliseconds;
    },
  });
  return { machine, yielding };
}

test('a yielding stream delivers everything in order, and its lag is reported meanwhile', async () => {
  const receiver = await startReceiver();
  const { workspace, state } = await stream(receiver.url);
  const { machine, yielding } = crowded(3_600_000);
  for (let first = 0; first < 1200; first += 300)
    await apply(workspace, ...Array.from({ length: 300 }, (_, n) => event('ada', `event-${first + n}`)));
  const running = deliverStreams({ yielding });
  await soon(async () => receiver.messages().length > 0);
  const { lag, delivered } = await state();
  expect(delivered === 1200 || lag > 0).toBe(true);
  await soon(async () => (await state()).delivered === 1200);
  await running.stop();
  expect(machine.waited).toBeGreaterThan(0);
  expect(receiver.messages().map(({ data }) => (data as { name: string }).name)).toEqual(
    Array.from({ length: 1200 }, (_, n) => `event-${n}`),
  );
  expect((await state()).lag).toBe(0);
});

test('a stream at its maximum lag does not yield', async () => {
  const receiver = await startReceiver();
  const { workspace } = await stream(receiver.url);
  const { machine, yielding } = crowded(1);
  await apply(workspace, event('ada', 'one'));
  const running = deliverStreams({ yielding });
  await soon(async () => receiver.messages().length === 1);
  await running.stop();
  expect(machine.waited).toBe(0);
});

test('a file waits until clients are served, and is then written', async () => {
  const { workspace, state } = await streamToFiles(await inFolder());
  const { machine, yielding } = crowded(3_600_000);
  await apply(workspace, event('ada', 'one'));
  let isAsked = false;
  const file = yielding.file;
  yielding.file = (...given) => {
    isAsked = true;
    return file(...given);
  };
  const running = deliverStreams({ yielding });
  await waitUntil(async () => isAsked, { what: 'a lease' });
  expect((await state()).delivered).toBe(0);
  machine.isFull = false;
  await soon(async () => (await state()).delivered === 1);
  await running.stop();
});
