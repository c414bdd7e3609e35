import { readFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { beforeAll, describe, expect, test } from 'vitest';
import { packageRoot } from '../../src/platform/files.ts';
import {
  type Column,
  type Model,
  readPrismaSchema,
  referencesOf,
} from '../../tools/generate/prisma-schema.ts';
import { createDatabaseOfOne } from '../setup/fixtures.ts';

/** Types of Postgres by the types of prisma/schema.prisma. */
const sqlTypes: Record<string, string> = {
  String: 'text',
  'String @db.Uuid': 'uuid',
  Int: 'integer',
  'Int @db.SmallInt': 'smallint',
  BigInt: 'bigint',
  Float: 'double precision',
  'Float @db.Real': 'real',
  'Decimal @db.Decimal': 'numeric',
  Boolean: 'boolean',
  'DateTime @db.Timestamptz': 'timestamp with time zone',
  'DateTime @db.Date': 'date',
  Json: 'jsonb',
  'Json @db.Json': 'json',
  Bytes: 'bytea',
};

/** Exceptions that Prisma cannot express: lists that can be null, and relations without a foreign key. */
const exceptions = {
  nullableLists: ['fleet_history.depth', 'fleet_history.oldest_seconds', 'segment_exports.attributes'],
  relationsWithoutKey: [
    'imports (workspace_id) -> workspaces, NoAction',
    'segments (workspace_id) -> workspaces, NoAction',
  ],
};

const models = readPrismaSchema(readFileSync(path.join(packageRoot, 'prisma/schema.prisma'), 'utf8'));
const byName = new Map(models.map((model) => [model.name, model]));
const tables = models.filter(({ isView }) => !isView);

let url: string;

beforeAll(async () => {
  ({ url } = await createDatabaseOfOne());
});

async function query<Row extends pg.QueryResultRow>(text: string): Promise<Row[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  return (await client.query<Row>(text).finally(() => client.end())).rows;
}

/** Tables and views without partitions, and without the table of Prisma's migrations. */
const ours = `
  select pg_class.oid, pg_class.relname, pg_class.relkind = 'v' as "isView"
  from pg_class
  where pg_class.relnamespace = 'public'::regnamespace
    and pg_class.relkind in ('r', 'p', 'v')
    and not pg_class.relispartition
    and pg_class.relname <> '_prisma_migrations'`;

/** Returns a line for a column. Columns of views can always be null in Postgres, so only tables are compared. */
const lineOf = (model: Model, { name, type, isList, isOptional, hasDefault }: Column) => {
  const column = `${model.table}.${name}`;
  const isNullable = isOptional || (isList && exceptions.nullableLists.includes(column));
  const rest = [!isNullable && 'not null', hasDefault && 'default'].filter(Boolean);
  return [column, `${sqlTypes[type]}${isList ? '[]' : ''}`, ...(model.isView ? [] : rest)].join(' ');
};

describe('prisma/schema.prisma', () => {
  test('has exactly the columns of the database, with type, nullability and default', async () => {
    const rows = await query<{ line: string }>(`
      select concat_ws(' ', ours.relname || '.' || pg_attribute.attname,
        format_type(pg_attribute.atttypid, pg_attribute.atttypmod),
        case when not ours."isView" and pg_attribute.attnotnull then 'not null' end,
        case when pg_attribute.atthasdef or pg_attribute.attidentity <> '' then 'default' end) as line
      from (${ours}) as ours
      join pg_attribute on pg_attribute.attrelid = ours.oid
      where pg_attribute.attnum > 0 and not pg_attribute.attisdropped`);
    const lines = models.flatMap((model) => model.columns.map((column) => lineOf(model, column)));
    expect(lines.sort()).toEqual(rows.map(({ line }) => line).sort());
  });

  test('has the primary key of every table', async () => {
    const rows = await query<{ line: string }>(`
      select ours.relname || ' ' || pg_get_constraintdef(pg_constraint.oid) as line
      from (${ours}) as ours
      left join pg_constraint on pg_constraint.conrelid = ours.oid and pg_constraint.contype = 'p'
      where not ours."isView"`);
    const lines = tables.map(({ table, primaryKey }) => `${table} PRIMARY KEY (${primaryKey.join(', ')})`);
    expect(lines.sort()).toEqual(rows.map(({ line }) => line).sort());
  });

  test('has every index that Prisma can express, and names the others in the comment of the model', async () => {
    const rows = await query<{ table: string; name: string; line: string; isPlain: boolean }>(`
      select ours.relname as table, index.relname as name,
        pg_index.indpred is null and pg_index.indexprs is null as "isPlain",
        concat_ws(' ', ours.relname, index.relname, case when pg_index.indisunique then 'unique' end, (
          select string_agg(pg_attribute.attname, ', ' order by keys.place)
          from unnest(pg_index.indkey::smallint[]) with ordinality as keys (number, place)
          join pg_attribute on pg_attribute.attrelid = ours.oid and pg_attribute.attnum = keys.number)) as line
      from (${ours}) as ours
      join pg_index on pg_index.indrelid = ours.oid and not pg_index.indisprimary
      join pg_class as index on index.oid = pg_index.indexrelid`);
    const lines = tables.flatMap(({ table, indexes }) =>
      indexes.map(({ name, isUnique, columns }) =>
        [table, name, ...(isUnique ? ['unique'] : []), columns.join(', ')].join(' '),
      ),
    );
    const plainLines = rows.filter(({ isPlain }) => isPlain).map(({ line }) => line);
    expect(lines.sort()).toEqual(plainLines.sort());
    const named = tables.flatMap(({ table, comment }) => {
      const [, names = ''] = comment.split(/Index(?:es)? in the migrations/);
      return [...names.matchAll(/`(\w+)`/g)]
        .map(([, name]) => name!)
        .filter((name) => name.startsWith(`${table}_`));
    });
    const others = rows.filter(({ isPlain }) => !isPlain).map(({ name }) => name);
    expect(named.sort()).toEqual(others.sort());
  });

  test('has exactly the foreign keys of the database as relations', async () => {
    const rows = await query<{ line: string }>(`
      select format('%s (%s) -> %s, %s', ours.relname, (
          select string_agg(pg_attribute.attname, ', ' order by keys.place)
          from unnest(pg_constraint.conkey) with ordinality as keys (number, place)
          join pg_attribute on pg_attribute.attrelid = ours.oid and pg_attribute.attnum = keys.number),
        target.relname, case pg_constraint.confdeltype when 'c' then 'Cascade' when 'a' then 'NoAction' end) as line
      from (${ours}) as ours
      join pg_constraint on pg_constraint.conrelid = ours.oid and pg_constraint.contype = 'f'
      join pg_class as target on target.oid = pg_constraint.confrelid`);
    const lines = tables.flatMap(({ table, relations }) =>
      relations.map(
        ({ columns, model, onDelete }) =>
          `${table} (${columns.join(', ')}) -> ${byName.get(model)!.table}, ${onDelete}`,
      ),
    );
    expect(lines.sort()).toEqual([...rows.map(({ line }) => line), ...exceptions.relationsWithoutKey].sort());
  });

  test('lists the values of every check constraint in the comment of its column', async () => {
    const rows = await query<{ table: string; column: string; definition: string }>(`
      select ours.relname as table, pg_attribute.attname as column, pg_get_constraintdef(pg_constraint.oid) as definition
      from (${ours}) as ours
      join pg_constraint on pg_constraint.conrelid = ours.oid and pg_constraint.contype = 'c'
      join pg_attribute on pg_attribute.attrelid = ours.oid and pg_attribute.attnum = pg_constraint.conkey[1]
      where pg_get_constraintdef(pg_constraint.oid) like '%ARRAY[%'`);
    expect(rows.length).toBeGreaterThan(15);
    const missing = rows.flatMap(({ table, column, definition }) => {
      const of = models.find((model) => model.table === table);
      const comment = of?.columns.find(({ name }) => name === column)?.comment ?? '';
      const values = [...definition.matchAll(/'([^']*)'::text/g)].map(([, value]) => value!);
      return values
        .filter((value) => !comment.includes(`\`${value}\``))
        .map((value) => `${table}.${column}: ${value}`);
    });
    expect(missing).toEqual([]);
  });

  test('names every partitioned table in the comment of its model', async () => {
    const rows = await query<{ name: string }>(
      "select relname as name from pg_class where relkind = 'p' and relnamespace = 'public'::regnamespace",
    );
    const named = tables.filter(({ comment }) => /Partitioned by/.test(comment)).map(({ table }) => table);
    expect(named.sort()).toEqual(rows.map(({ name }) => name).sort());
  });
});

test('every model of the schema has a comment and a group, and its references name models', () => {
  expect(models.length).toBeGreaterThan(70);
  expect(
    models.filter(({ comment, group }) => comment === '' || group === '').map(({ name }) => name),
  ).toEqual([]);
  const unknown = models.flatMap(({ name, columns }) =>
    columns.flatMap(({ comment }) =>
      referencesOf(comment)
        .filter((other) => !byName.has(other))
        .map((other) => `${name}: ${other}`),
    ),
  );
  expect(unknown).toEqual([]);
});
