import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import type { Json } from '../../src/profile/json.ts';
import { merge } from '../identity/objects.ts';
import { createWorkspace, type TestWorkspace } from '../setup/workspace.ts';
import { applyBatch } from './apply-batch.ts';
import { attributes, createStore, deliver, event, readDeadLetters } from './batch.ts';
import { FULL } from './full-users.ts';

let pool: pg.Pool;
let workspace: TestWorkspace;
beforeAll(async () => {
  ({ pool } = await createStore());
});
afterAll(() => pool.end());

const range = (length: number) => Array.from({ length }, (_, index) => index);

/** Creates users with these attributes in a new workspace. */
async function grow(users: { external_id: string; email?: string; custom: Record<string, Json> }[]) {
  workspace = await createWorkspace(pool, crypto.randomUUID());
  for (const { external_id, email, custom } of users)
    await pool.query(
      `insert into profiles (workspace_id, id, external_id, email, custom_attributes, created_at, updated_at)
       values ($1, gen_random_uuid(), $2, $3, $4, now(), now())`,
      [workspace.id, external_id, email, custom],
    );
}

const apply = (...objects: AcceptedObject[]) => applyBatch(pool, [deliver(workspace, objects)]);

async function customOf(externalId: string): Promise<Record<string, Json>> {
  const { rows } = await pool.query(
    'select custom_attributes as custom from profiles where workspace_id = $1 and external_id = $2',
    [workspace.id, externalId],
  );
  return rows[0].custom;
}

async function reasons(): Promise<string[]> {
  const deadLetterRows = await readDeadLetters(pool);
  return deadLetterRows
    .filter(({ workspace_id }) => workspace_id === workspace.id)
    .map(({ reason }) => reason);
}

describe('G8: a user whose stored custom attributes exceed the limit', () => {
  const empties = range(7000).map((id) => ({ id }));
  beforeAll(() =>
    grow([{ external_id: 'old', custom: { ...FULL, empties, tags: ['a', 'b'], seen: 'never' } }]),
  );

  test.each<[string, Parameters<typeof attributes>[1]]>([
    ['attributes of equal size', { set: { seen: 'twice', text0: 'y'.repeat(250) } }],
    ['smaller attributes', { set: { text1: 'short', text2: null } }],
    ['one array element fewer', { change: { tags: { array: { remove: ['a'] } } } }],
    [
      'one array object fewer',
      { change: { empties: { objects: { remove: [{ key: 'id', value: 3 }], merge: false } } } },
    ],
  ])('accepts a change that does not make it larger: %s', async (_, change) => {
    expect(await apply(attributes('old', change))).toMatchObject({ objects: 1, deadLetters: [] });
  });

  test('rejects a change that makes it larger, with a dead letter that names the limit', async () => {
    const { deadLetters } = (await apply(attributes('old', { set: { more: 'x' } }))) as {
      deadLetters: string[];
    };
    expect(deadLetters).toHaveLength(1);
    const [reason] = (await reasons()) as string[];
    expect(reason).toMatch(/^custom attributes of this user would exceed 256 KiB: .* \(now \d+\.\d KiB\)$/);
    // The beginning, by which dead letters are grouped, is the same for every user.
    expect(reason!.slice(0, 120)).not.toContain('now');
    expect(await customOf('old')).not.toHaveProperty('more');
  });

  test('accepts any change again once its attributes are below the limit', async () => {
    expect(await apply(attributes('old', { set: { empties: null } }))).toMatchObject({ objects: 1 });
    expect(await apply(attributes('old', { set: { more: 'x' } }))).toMatchObject({
      objects: 1,
      deadLetters: [],
    });
    expect(await customOf('old')).toMatchObject({ more: 'x', seen: 'twice', tags: ['b'] });
  });
});

describe('G8: many full users in one request', () => {
  beforeAll(() => grow(range(20).map((index) => ({ external_id: `full-${index}`, custom: FULL }))));

  test('are applied in rounds of a few users', async () => {
    const objects = range(20).map((index) => attributes(`full-${index}`, { set: { seen: index } }));
    const part = { milliseconds: 0 };
    const result = await applyBatch(pool, [deliver(workspace, objects)], part);
    expect(result).toMatchObject({ kind: 'applied', left: expect.any(Map) });
    expect((result as { objects: number }).objects).toBeLessThan(12);
  });

  test('are applied in one round if the request changes each of them several times', async () => {
    const objects = range(6).flatMap((round) =>
      range(12).map((index) => attributes(`full-${index}`, { set: { seen: `${round}` } })),
    );
    const part = { milliseconds: 0 };
    const result = await applyBatch(pool, [deliver(workspace, objects)], part);
    expect(result).toMatchObject({ kind: 'applied', objects: 72 });
    expect(result).not.toHaveProperty('left');
  });

  test('are split into rounds also if one object names a user twice', async () => {
    const merges = [merge('full-0', 'full-0'), merge('full-1', 'full-2'), merge('full-3', 'full-3')];
    expect(await apply(...merges, event('full-1'))).toMatchObject({ kind: 'applied' });
  });
});

describe('G8: the holders of an address with many holders', () => {
  /** Applies objects and returns the number of queries for holders of addresses. */
  async function looksOf(...objects: AcceptedObject[]): Promise<number> {
    let queries = 0;
    const counting = {
      connect: async () => {
        const tx = await pool.connect();
        const sent = tx.query;
        const query = sent.bind(tx) as (...given: unknown[]) => unknown;
        tx.query = ((...given: unknown[]) => {
          if ((given[0] as { name?: string })?.name === 'find-by-email') queries++;
          return query(...given);
        }) as typeof tx.query;
        const release = tx.release.bind(tx);
        tx.release = (...given) => {
          tx.query = sent;
          Reflect.deleteProperty(tx, 'release');
          return release(...given);
        };
        return tx;
      },
    } as unknown as pg.Pool;
    await applyBatch(counting, [deliver(workspace, objects)]);
    return queries;
  }

  const email = 'crowd@example.com';
  beforeAll(() =>
    grow(
      range(30).map((index) => ({ external_id: `holder-${index}`, email, custom: index === 0 ? FULL : {} })),
    ),
  );
  /** Makes `holder-0` the user that the address means, by updating it last. */
  const first = () => apply(attributes('holder-0', { set: { text0: 'now' } }));
  const tooMuch = (index: number) =>
    attributes(
      { email },
      { standard: { email }, set: { [`more${index}`]: range(250).map(() => 'x'.repeat(250)) } },
    );

  test('are queried once for all objects, even if each object is refused', async () => {
    await first();
    expect(await looksOf(...range(20).map(tooMuch))).toBe(1);
    expect(await reasons()).toHaveLength(20);
  });

  test('are queried again only after the address was given or removed; dead letters name the user', async () => {
    await grow([{ external_id: 'alone', email, custom: FULL }]);
    const { rows } = await pool.query('select id from profiles where workspace_id = $1', [workspace.id]);
    const refused = tooMuch(0);
    const queries = await looksOf(
      refused,
      attributes('other', { standard: { email } }),
      event('other'),
      attributes('alone', { standard: { email: 'elsewhere@example.com' } }),
      event({ email }),
    );
    expect(queries).toBe(2);
    const deadLetterRows = await pool.query('select identifiers from dead_letters where id = $1', [
      refused.id,
    ]);
    expect(deadLetterRows.rows[0].identifiers).toContain(`u:${rows[0].id}`);
  });
});
