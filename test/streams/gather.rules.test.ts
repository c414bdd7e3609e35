import { expect, test } from 'vitest';
import type { LogRow } from '../../src/store/stream-log.ts';
import { envelopeOf, type LogPosition, type Message } from '../../src/streams/destination.ts';
import { keyOf, requireFolder } from '../../src/streams/file-locations.ts';
import { gather } from '../../workers/streams/deliver-file.ts';
import type { Page } from '../../workers/streams/read.ts';

const at = (position: number, location = 0): LogPosition => ({ position: String(position), place: location });

/**
 * Returns the entry after whose delivery the cursor is at this place: the last of its row, or an earlier one.
 */
function entryBefore({ position, place }: LogPosition): { row: LogRow; index: number } {
  const row = { at: new Date(), kinds: '', profileIds: [], details: null, bytes: 0 };
  return place === 0
    ? { row: { ...row, id: position, behind: '0', ids: ['last'] }, index: 0 }
    : {
        row: { ...row, id: String(Number(position) + 1), behind: position, ids: Array(place + 1).fill('') },
        index: place - 1,
      };
}

/** Returns a page of messages at places of the log, each with its time of day. */
function page(messages: [LogPosition, string][], end: LogPosition): Page {
  const read = messages.map(([cursor, time]) => {
    const message: Message = {
      ...{ id: `${cursor.position}.${cursor.place}`, type: 'event', time: `2026-11-24T${time}Z` },
      ...{ workspaceId: 'w', position: cursor.position, key: 'k', user: null, data: '{}' },
    };
    const envelope = envelopeOf(message, 'service_id');
    return { ...entryBefore(cursor), message, envelope, bytes: Buffer.byteLength(envelope) };
  });
  return { read, end };
}

async function gathered(pages: Page[], others: Partial<Parameters<typeof gather>[0]> = {}) {
  const rest = [...pages];
  const { gathered: result, pieces } = gather({
    ...{ from: at(1), first: rest.shift()!, next: async () => rest.shift() },
    ...{ lastHour: null, ...others },
  });
  const ids: string[] = [];
  for await (const { messages } of pieces) ids.push(...messages.map(({ id }) => id));
  expect(result.messages).toBe(ids.length);
  return { ids, end: result.end, hour: result.hour?.toISOString().slice(11, 13), left: rest.length };
}

test('a file ends at the horizon, its maximum size, before a later hour, or after a page limit', async () => {
  const pages = () => [
    page(
      [
        [at(2), '08:00:00'],
        [at(2, 1), '08:00:01'],
      ],
      at(3),
    ),
    page(
      [
        [at(4), '08:59:59'],
        [at(5), '09:00:00'],
      ],
      at(5),
    ),
    page([[at(6), '09:00:01']], at(6)),
  ];
  expect(await gathered(pages())).toEqual({ ids: ['2.0', '2.1', '4.0'], end: at(4), hour: '08', left: 1 });
  expect(await gathered(pages().slice(0, 1))).toEqual({
    ids: ['2.0', '2.1'],
    end: at(3),
    hour: '08',
    left: 0,
  });
  // Hours never go back.
  const all = await gathered(pages(), { lastHour: new Date('2026-11-24T09:00:00Z') });
  expect(all).toEqual({ ids: ['2.0', '2.1', '4.0', '5.0', '6.0'], end: at(6), hour: '09', left: 0 });
  // An entry larger than the maximum is a file of its own.
  const small = await gathered(pages(), { limits: { bytes: 1, pages: 9 } });
  expect(small).toEqual({ ids: ['2.0'], end: at(2), hour: '08', left: 2 });
  const short = await gathered(pages(), { limits: { bytes: 10_000, pages: 1 } });
  expect(short).toMatchObject({ ids: ['2.0', '2.1'], end: at(3), left: 2 });
});

test('a planned file ends as planned, whatever other limit applies and whatever was erased', async () => {
  const planned = { end: at(5, 2), hour: new Date('2026-11-24T07:00:00Z') };
  const pages = [
    page([[at(2), '08:00:00']], at(3)),
    page(
      [
        [at(5, 1), '09:00:00'],
        [at(5, 3), '09:00:00'],
      ],
      at(5, 3),
    ),
  ];
  const most = { bytes: 1, pages: 1 };
  expect(await gathered(pages, { planned, limits: most })).toEqual({
    ...{ ids: ['2.0', '5.1'], end: at(5, 2), hour: '07', left: 0 },
  });
  expect(await gathered(pages.slice(0, 1), { planned })).toMatchObject({ ids: ['2.0'], end: at(5, 2) });
  expect(await gathered([page([], at(9))], { planned })).toMatchObject({ ids: [], end: at(5, 2) });
});

test('keys are in the order of the log, also within a row', () => {
  const key = (hour: string, from: LogPosition, to: LogPosition) =>
    keyOf({ workspaceId: 'w', hour: new Date(`2026-11-24T${hour}:00:00Z`), from, to }, 'ndjson');
  const keys = [
    key('08', at(9), at(9, 500)),
    key('08', at(9, 500), at(10)),
    key('08', at(10), at(99)),
    key('09', at(99), at(100)),
  ];
  expect(keys[1]).toBe(
    'workspace=w/date=2026-11-24/hour=08/0000000000000000009.000500-0000000000000000010.ndjson.gz',
  );
  expect([...keys].sort()).toEqual(keys);
});

test('a folder must be one of the allowed folders or inside one', () => {
  const targets = { folders: ['/data/streams'], bucketAccess: () => ({}) as never };
  for (const folder of ['/data/streams', '/data/streams/a', '/data/streams/..a'])
    expect(() => requireFolder(folder, targets)).not.toThrow();
  for (const folder of ['/data', '/data/streams-2', '/', '/etc'])
    expect(() => requireFolder(folder, targets)).toThrow('STREAM_FOLDERS');
});
