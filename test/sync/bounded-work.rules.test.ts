import { describe, expect, test } from 'vitest';
import { kinds, type SourceRow } from '../../src/integrations/source.ts';
import type { Caller } from '../../src/operations/operation.ts';
import { buildChunk, createRowValidator } from '../../workers/sync/chunk.ts';
import { createRowReader } from '../../workers/sync/read.ts';
import { threadTime } from '../setup/thread-time.ts';
import { at } from './memory-source.ts';

const caller: Caller = {
  workspaceId: '018f0000-0000-7000-8000-000000000000',
  requestId: '018f0000-0000-7000-8000-000000000001',
  now: Date.UTC(2026, 10, 22),
  hasGroup: () => false,
  channelOf: () => undefined,
  isBlocked: () => false,
};

/** Maximum size of a payload in bytes. */
const MAX_PAYLOAD_BYTES = 1_048_576;

const many = (part: (index: number) => string, each: number, [begin, close] = ['{"name": "e"', '}']) =>
  `${begin}${Array.from({ length: Math.floor((MAX_PAYLOAD_BYTES - 100) / each) }, (_, index) => part(index)).join('')}${close}`;

/** Payloads that are the most expensive to read, validate and serialize. */
const payloads: Record<string, string> = {
  'one long text': JSON.stringify({ name: 'x', text: 'x'.repeat(MAX_PAYLOAD_BYTES - 100) }),
  'a text of escapes': `{"name": "e", "text": "${'\\u0041'.repeat((MAX_PAYLOAD_BYTES - 100) / 6)}"}`,
  'a text of emoji': JSON.stringify({ name: 'e', text: '🌊'.repeat(MAX_PAYLOAD_BYTES / 4 - 100) }),
  'keys that are all different': many((index) => `,"k${index}":1`, 12),
  'objects in an array': many((index) => `${index ? ',' : ''}{}`, 3, ['{"name": "e", "a": [', ']}']),
  'arrays in an array': many((index) => `${index ? ',' : ''}[]`, 3, ['{"name": "e", "a": [', ']}']),
  numbers: many((index) => `${index ? ',' : ''}1.5e300`, 8, ['{"name": "e", "a": [', ']}']),
  'arrays within one another': `{"name": "e", "a": ${'['.repeat(400_000)}${']'.repeat(400_000)}}`,
  'objects within one another': `{"name": "e", "a": ${'{"a":'.repeat(150_000)}1${'}'.repeat(150_000)}}`,
  '250 attributes': JSON.stringify(
    Object.fromEntries(Array.from({ length: 250 }, (_, index) => [`k${index}`, 'x'.repeat(4000)])),
  ),
  'keys that every object has': many(() => ',"__proto__":{"constructor":1}', 32),
  'no JSON': '{'.repeat(MAX_PAYLOAD_BYTES - 1),
};

async function chunkOf(rows: SourceRow[], size = 1000): Promise<SourceRow[]> {
  async function* batches() {
    yield rows;
  }
  return createRowReader(batches())(size);
}

describe.each(kinds)('a chunk of %s', (kind) => {
  const validateRow = createRowValidator('service_id');
  const making = {
    run: { id: caller.requestId, kind, updateExistingOnly: false, workspaceId: caller.workspaceId },
    caller,
    judge: validateRow,
    lanes: 4,
    maxEnvelopeObjects: 2000,
  };
  const judged = (rows: SourceRow[]): number => {
    const started = threadTime();
    JSON.stringify(buildChunk(rows, { rows: 0, failed: 0, warned: 0, newest: undefined }, making).chunk);
    return threadTime() - started;
  };

  test.each(Object.keys(payloads))(
    'G8: rows of the maximum size, of %s, block the event loop for less than a second',
    async (shape) => {
      const rows = Array.from({ length: 20 }, (_, index) => ({
        updatedAt: at(index),
        identifiers: { external_id: `user-${index}` },
        payload: payloads[shape]!,
      }));
      const chunk = await chunkOf(rows);
      expect(chunk.length).toBeLessThanOrEqual(2);
      expect(judged(chunk)).toBeLessThan(1000);
    },
  );

  test('G8: a thousand rows with the longest identifiers are chunked and validated in a second', async () => {
    const long = '+'.repeat(10_000);
    const rows = Array.from({ length: 1000 }, (_, index) => ({
      updatedAt: at(index),
      identifiers: { external_id: long, alias_name: long, alias_label: long, email: `${long}@`, phone: long },
      payload: '{}',
    }));
    const chunk = await chunkOf(rows);
    expect(chunk.length).toBeLessThan(30);
    expect(judged(chunk)).toBeLessThan(1000);
  });

  test('G8: a thousand rows of a kilobyte are validated in less than a second', async () => {
    const rows = Array.from({ length: 1000 }, (_, index) => ({
      updatedAt: at(0),
      identifiers: { email: `user-${index}@example.com` },
      payload: JSON.stringify({
        name: 'e',
        product_id: 'p',
        currency: 'EUR',
        price: 1,
        text: 'x'.repeat(900),
      }),
    }));
    const chunk = await chunkOf(rows);
    expect(chunk).toHaveLength(1000);
    expect(judged(chunk)).toBeLessThan(1000);
  });
});
