import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { outlineOf, parsePieces } from '../../src/edge/body.ts';
import { planWithGroups } from '../../src/edge/plan-request.ts';
import type { Plan, QueuedOperation } from '../../src/operations/operation.ts';
import { usersTrack } from '../../src/operations/users.track.ts';
import type { Json } from '../../src/profile/json.ts';
import { type Fleet, startFleet } from '../guarantees/fleet.ts';
import { callerOf } from '../operations/caller.ts';
import { send } from '../setup/api.ts';
import { threadTime } from '../setup/thread-time.ts';

const LIMIT = 4_194_304;

/** JSON members with distinct names, numbered from `from`. */
const members = (count: number, value = '0', from = 0) =>
  Array.from({ length: count }, (_, index) => `"k${(from + index).toString(36)}":${value}`).join(',');
const deep = (levels: number) => `${'['.repeat(levels)}${']'.repeat(levels)}`;
const empties = (count: number) => `[${Array(count).fill('{}').join(',')}]`;

describe('an object that must not be parsed is refused individually, with its rule', () => {
  let fleet: Fleet;
  beforeAll(async () => {
    fleet = await startFleet('redis', { edges: 1, workers: 0 });
  });
  afterAll(() => fleet?.stop());

  const post = (path: string, raw: string) =>
    send(fleet.edges[0]!.port, { path, key: fleet.workspace.key, raw });

  const rules: [what: string, content: string, rule: string][] = [
    ['nests too deep', `"a":${deep(100_000)}`, 'it must not nest deeper than 50'],
    [
      'has too many keys',
      members(90_000),
      'it must not have more than 20000 keys, including the keys of nested objects',
    ],
    ['has too many keys of its own', members(15_000), 'it must not have more than 10000 keys'],
    [
      'has too many objects in it',
      `"a":${empties(250_000)}`,
      'it must not have more than 50000 objects and arrays in it',
    ],
  ];

  test.each(rules)(
    '/users/track: an object that %s is refused, and other objects of each array are stored',
    async (_, content, rule) => {
      const event = '"name":"e","time":"2026-01-01T00:00:00Z"';
      const { status, body } = await post(
        '/users/track',
        `{"attributes":[{"external_id":"a"},{"external_id":"b",${content}},{"external_id":"c"}],
        "events":[{"external_id":"b",${event}},{"external_id":"b",${event},"properties":{${content}}}]}`,
      );
      expect([status, body.attributes_processed, body.events_processed]).toEqual([201, 2, 1]);
      expect(body.errors).toMatchObject([
        { input_array: 'attributes', index: 1 },
        { input_array: 'events', index: 1 },
      ]);
      expect(body.errors[0].type).toContain(rule);
    },
  );

  test.each(rules)(
    '/users/identify, alias/new, external_ids/rename: an object that %s is refused',
    async (_, content, rule) => {
      const cases: [path: string, field: string, object: string][] = [
        [
          '/users/identify',
          'aliases_to_identify',
          '"external_id":"a","user_alias":{"alias_name":"n","alias_label":"l"}',
        ],
        ['/users/alias/new', 'user_aliases', '"external_id":"a","alias_name":"n","alias_label":"l"'],
        [
          '/users/external_ids/rename',
          'external_id_renames',
          '"current_external_id":"a","new_external_id":"z"',
        ],
      ];
      for (const [path, field, object] of cases) {
        const { status, body } = await post(path, `{"${field}":[{${object}},{${object},${content}}]}`);
        expect([path, status]).toEqual([path, path.endsWith('rename') ? 202 : 201]);
        const [refused] = body.errors ?? body.rename_errors;
        expect(JSON.stringify(refused)).toContain(rule);
      }
    },
  );

  test('a single object in place of an array is refused as well', async () => {
    const { status, body } = await post(
      '/users/track',
      `{"attributes":{"external_id":"a","b":${deep(100_000)}}}`,
    );
    expect([status, body.errors[0]]).toMatchObject([400, { input_array: 'attributes', index: 0 }]);
  });

  test('a violation outside of all objects refuses the whole request with 400', async () => {
    const { status, body } = await post(
      '/users/track',
      `{${members(90_000)},"attributes":[{"external_id":"a"}]}`,
    );
    expect([status, body.message]).toEqual([400, expect.stringContaining('80,000 keys')]);
  });

  test('a body that is not JSON is refused with 400', async () => {
    for (const raw of [
      `{"attributes":[{"external_id":"a"},{"b":${'['.repeat(100_000)}`,
      `{"attributes":[{"external_id":"a","b":${deep(100_000)}},{"external_id":x}]}`,
    ]) {
      expect((await post('/users/track', raw)).body.message).toContain('parsing');
    }
  });
});

describe('parsing a body object by object gives the same result as parsing it at once', () => {
  const padding = `${empties(30_000)},${empties(30_000)}`;
  test.each([
    '{"attributes":[{"a":1,"b":[{"c":"]}\\"{["}]},null,1,"x",[{"d":2}],{}],"events":{"e":{"f":[]}},"ids":[1],"n":0}',
    '{"__proto__":[{"constructor":1}],"a":[{"__proto__":{"b":1}}],"1":[{"c":{}}],"0":[]}',
    '{"a":[{"b":1}],"a":[{"b":2}],"":[{"":3}],"é€😀":[{"é":"😀"}]}',
  ])('%s', async (text) => {
    const raw = Buffer.from(`{"padding":[${padding}],${text.slice(1)}`);
    const pieces = outlineOf(raw);
    if (!Array.isArray(pieces)) throw new Error(`it was parsed ${pieces}`);
    const parsed = await parsePieces(raw, pieces);
    expect(parsed).toEqual(JSON.parse(raw.toString()));
    expect(Object.getPrototypeOf(parsed)).toBe(Object.prototype);
  });
});

describe('G8: no 4 MB body blocks other requests for long', () => {
  const of = (count: number, content: (index: number) => string) =>
    `{"attributes":[${Array.from({ length: count }, (_, index) => `{"external_id":"${index}",${content(index)}}`).join(',')}]}`;
  const each = Math.floor(LIMIT / 75) - 200;
  const perObject = Math.floor(each / 10);
  const shapes: [string, () => string][] = [
    ['arrays in arrays', () => `{"attributes":[{"a":${deep(2_000_000)}}]}`],
    ['arrays in arrays, in each object', () => of(75, () => `"a":${deep(Math.floor(each / 2) - 10)}`)],
    ['empty objects', () => `{"attributes":[{"a":${empties(1_380_000)}}]}`],
    ['empty objects, in each object', () => of(75, () => `"a":${empties(Math.floor(each / 3) - 10)}`)],
    ['keys that are all different', () => of(1, () => members(380_000))],
    [
      'keys that are all different, in each object',
      () => of(75, (index) => members(perObject, '0', index * perObject)),
    ],
    [
      'objects of different keys',
      () =>
        of(
          75,
          (index) =>
            `"a":[${Array.from({ length: Math.floor(each / 13) }, (_, one) => `{${members(1, '0', index * 9999 + one)}}`)}]`,
        ),
    ],
    ['the same key', () => of(1, () => Array(690_000).fill('"a":0').join(','))],
  ];

  test.each(shapes)('4 MB of %s let other requests run in between', async (_, make) => {
    const raw = Buffer.from(make());
    expect(raw.length).toBeLessThanOrEqual(LIMIT);
    expect(raw.length).toBeGreaterThan(LIMIT / 2);
    let longest = 0;
    // CPU time of this thread only: load from other processes must not count.
    let last = threadTime();
    const watch = () => {
      longest = Math.max(longest, threadTime() - last);
      last = threadTime();
    };
    const timer = setInterval(watch, 1);
    await new Promise((resolve) => setTimeout(resolve, 20));
    longest = 0;
    const outline = outlineOf(raw);
    if (typeof outline === 'string' && outline !== 'whole') throw new Error(`it is ${outline}`);
    const body = outline === 'whole' ? JSON.parse(raw.toString()) : await parsePieces(raw, outline);
    await plan(usersTrack('service_id'), body).catch(() => {});
    watch();
    clearInterval(timer);
    // It takes a fraction of a second on an idle machine.
    expect(longest).toBeLessThan(700);
  });

  const plan = async (operation: QueuedOperation, body: Record<string, Json>): Promise<Plan> =>
    planWithGroups(operation, { caller: callerOf('shop'), body, renewGroups: async () => new Map() });
});
