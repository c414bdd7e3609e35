import { expect, test } from 'vitest';
import { openDestination } from '../../src/streams/open-destination.ts';
import { HeldWork } from '../../workers/jobs/held-work.ts';
import { event } from '../workers/batch.ts';
import { startReceiver } from './receiver.ts';
import { apply, deliverStreams, openingOf, soon, stream, useStore } from './scene.ts';

useStore();

test('a delivery that hangs frees its slot when its lease expires, and is shown as overdue', async () => {
  const receiver = await startReceiver();
  const hanging = await stream(receiver.url);
  const healthy = await stream(receiver.url);
  await apply(hanging.workspace, event('ada', 'read'));
  const heldWork = new HeldWork();
  let began = 0;
  const running = deliverStreams({
    ...{ atOnce: 1, times: { leaseMs: 300 }, heldWork },
    open(stored) {
      const destination = openDestination(stored, openingOf());
      if (stored.id !== hanging.id || !('deliver' in destination)) return destination;
      return {
        ...destination,
        async deliver() {
          began += 1;
          await new Promise(() => {});
        },
      };
    },
  });
  await soon(async () => began > 0);
  await apply(healthy.workspace, event('bob', 'read'));
  await soon(async () => (await healthy.state()).delivered === 1);
  const { failures, lastError, delivered } = await hanging.state();
  expect(failures).toBeGreaterThan(0);
  expect(lastError).toBe('the delivery was abandoned: it made no progress for 0.3 s');
  expect(delivered).toBe(0);
  const later = performance.now() + 600_000;
  expect(heldWork.overdue()).toEqual([]);
  expect(heldWork.overdue(later)).toContainEqual(
    expect.objectContaining({ kind: 'stream delivery', id: hanging.id }),
  );
  await running.stop();
});
