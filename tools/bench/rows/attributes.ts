import type { Contender } from '../contender.ts';
import type { Environment } from '../environment.ts';
import type { BenchRow, Figure } from '../figure.ts';
import type { Fleets } from '../fleets.ts';
import { measurePipeline } from '../pipeline.ts';
import { seedUsers } from '../seed.ts';
import { CONNECTIONS_OF_75, type Size } from '../size.ts';

/** Gives every profile the given number of custom attributes. */
const fill = `
  update profiles set custom_attributes = made.attributes
  from (
    select jsonb_object_agg('attribute_' || number, case number % 3
      when 0 then to_jsonb(number * 7919) when 1 then to_jsonb('some value'::text) else 'true'::jsonb end) as attributes
    from generate_series(0, $1::integer - 1) as number
  ) as made`;

/** The minimum work of the pipeline: merging two to four attributes into each of the profiles. */
const merge = `
  update profiles set custom_attributes = profiles.custom_attributes || delta.value
  from unnest($1::uuid[], $2::jsonb[]) as delta (id, value)
  where profiles.workspace_id = $3 and profiles.id = delta.id`;

/** Rows of one statement and one commit, as in one job of the pipeline. */
const ROWS = 2000;

/**
 * Measures merging attributes into profiles of several sizes, with the pipeline and with the plain statement
 * on the same rows.
 */
export function attributeRows(fleets: Fleets, environment: Environment, size: Size): BenchRow[] {
  let seeded: Promise<void> | undefined;

  async function prepare(attributes: number): Promise<Contender> {
    const ours = await fleets.scratch('attributes');
    seeded ??= seedUsers(ours, size.attributeProfiles);
    await seeded;
    await ours.pool.query(fill, [attributes]);
    await ours.pool.query('vacuum analyze profiles');
    await ours.pool.query('checkpoint');
    return ours;
  }

  async function byPipeline(attributes: number): Promise<Figure> {
    return measurePipeline(await prepare(attributes), environment, {
      objects: 75,
      kinds: ['attributes'],
      spread: 'evenly',
      connections: CONNECTIONS_OF_75,
      users: size.attributeProfiles,
      seconds: size.seconds / 2,
      maxRequests: Number.POSITIVE_INFINITY,
    });
  }

  async function byStatement(attributes: number): Promise<Figure> {
    const { pool } = await prepare(attributes);
    const { rows: profiles } = await pool.query<{ workspace: string; id: string }>(
      'select workspace_id::text as workspace, id::text from profiles order by md5(id::text)',
    );
    const ids = profiles.map(({ id }) => id);
    const started = performance.now();
    let merged = 0;
    for (let turn = 0; performance.now() - started < size.seconds * 500; turn++) {
      const some = batchOf(ids, turn);
      const deltas = some.map((_, index) => deltaOf(turn + index));
      await pool.query({ name: 'merge', text: merge, values: [some, deltas, profiles[0]!.workspace] });
      merged += some.length;
    }
    const seconds = (performance.now() - started) / 1000;
    return { value: merged / seconds, unit: '/s', detail: { rows: merged, seconds } };
  }

  return size.attributes.flatMap((attributes) => [
    {
      name: `attributes-${attributes}`,
      what: `Penstock, attributes of profiles that have ${attributes} custom ones: objects/s applied`,
      measure: () => byPipeline(attributes),
    },
    {
      name: `jsonb-${attributes}`,
      what: 'update … set custom_attributes = custom_attributes || … of the same rows, one connection: rows/s',
      measure: () => byStatement(attributes),
    },
  ]);
}

function batchOf(ids: string[], turn: number): string[] {
  const rows = Math.min(ROWS, ids.length);
  const first = (turn * rows) % (ids.length - rows + 1);
  return ids.slice(first, first + rows);
}

function deltaOf(seed: number): string {
  const names = Array.from(
    { length: 2 + (seed % 3) },
    (_, index) => `attribute_${(seed * 7 + index * 5) % 20}`,
  );
  return JSON.stringify(
    Object.fromEntries(names.map((name, index) => [name, [seed, 'some value', true][index % 3]])),
  );
}
