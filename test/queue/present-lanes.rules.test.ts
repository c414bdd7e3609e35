import { v7 as uuidv7 } from 'uuid';
import { expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { inPresentLanes } from '../../src/queue/installation.ts';
import { fenceEntries } from '../../src/queue/pack.ts';

const envelope = () => ({
  requests: [{ request_id: uuidv7(), workspace_id: uuidv7(), accepted_at: 'now', count: 1 }],
  objects: [{ kind: 'events', id: uuidv7() } as unknown as AcceptedObject],
});

test('entries are unchanged while all their lanes exist', () => {
  const entries = [
    { lane: 1, id: uuidv7(), envelope: envelope() },
    ...fenceEntries(uuidv7(), [0, 3], envelope()),
  ];
  expect(inPresentLanes(entries, 4)).toBe(entries);
});

test('with fewer lanes all entries go to the first one, with their ids and without marks', () => {
  const fence = uuidv7();
  const plain = { lane: 1, id: uuidv7(), envelope: envelope() };
  const held = envelope();
  const { requests, objects } = held;
  expect(inPresentLanes([plain, ...fenceEntries(fence, [0, 3], held)], 2)).toEqual([
    { ...plain, lane: 0 },
    { lane: 0, id: fence, envelope: { requests, objects } },
  ]);
});
