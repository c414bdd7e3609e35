import { expect, test } from 'vitest';
import { formOf } from '../../../tools/generate/citus-forms.ts';
import { withoutWorkspace } from './without-workspace.ts';

const tables = { profiles: 'workspace_id', events: 'workspace_id', token_buckets: 'owner_id' };
const faults = (sql: string) => withoutWorkspace(formOf(sql).text, tables);

test.each([
  'select 1 from profiles where profiles.workspace_id = $1::uuid',
  'select 1 from profiles join events using (workspace_id) where profiles.workspace_id = $1',
  'select 1 from profiles as p left join events as e on e.workspace_id = p.workspace_id where p.workspace_id = $1',
  'with mine as (select * from profiles where workspace_id = $1) select 1 from mine join events on events.workspace_id = mine.workspace_id',
  'select exists (select from events where events.workspace_id = p.workspace_id) from profiles as p where p.workspace_id = $1',
  'delete from events where (events.workspace_id, events.id) in (select p.workspace_id, p.id from profiles as p where p.workspace_id = $1)',
  'insert into events (workspace_id, id) values ($1, $2)',
  'insert into token_buckets (owner_id) select given.owner_id from (select $1::uuid as owner_id) as given',
  'select 1 from unnest($1::uuid[], $2::text[]) as given (workspace_id, id) join profiles on profiles.workspace_id = given.workspace_id',
  'insert into events (workspace_id, id) select made.workspace_id, made.id from jsonb_to_recordset($1::jsonb) as made (workspace_id uuid, id uuid)',
  `with recursive kept as (select events.workspace_id, events.id from events where events.workspace_id = $1
     union all select next.workspace_id, next.id from kept join events as next on next.workspace_id = kept.workspace_id)
   select 1 from kept`,
])('names its workspace: %s', async (sql) => {
  expect(await faults(sql)).toEqual([]);
});

test.each([
  ['select 1 from profiles where profiles.id = $1', ['profiles']],
  ['select 1 from profiles where profiles.workspace_id = any($1::uuid[])', ['profiles']],
  ['select 1 from profiles where profiles.workspace_id = $1 or profiles.id = $2', ['profiles']],
  ['select 1 from profiles where not profiles.workspace_id = $1', ['profiles']],
  [
    'select 1 from profiles join events on events.id = profiles.id where profiles.workspace_id = $1',
    ['events'],
  ],
  [
    'select 1 from profiles join events on true where profiles.workspace_id = $1 and events.workspace_id = $2',
    ['events'],
  ],
  [
    'select exists (select from events where events.id = p.id) from profiles as p where p.workspace_id = $1',
    ['events'],
  ],
  ['insert into events (id) values ($1)', ['events']],
  ['insert into events (workspace_id) values ($1), ($2)', ['events']],
  ['insert into events (workspace_id) select workspaces.id from workspaces', ['events']],
  [
    'with gone as (delete from events returning workspace_id) select 1 from profiles where workspace_id = $1',
    ['events'],
  ],
  [
    `select 1 from (select workspace_id from profiles where workspace_id = $1 union all select $2::uuid) as one
      join events on events.workspace_id = one.workspace_id`,
    ['events'],
  ],
  ['select 1 from unnest($1::uuid[]) as wanted (id) join profiles on profiles.id = wanted.id', ['profiles']],
])('does not name its workspace: %s', async (sql, result) => {
  expect(await faults(sql)).toEqual(result);
});

test('a set of one workspace names it once, before all columns that are compared with it', () => {
  expect(
    formOf(
      'delete from events using unnest($1::uuid[], $2::uuid[]) as given (workspace_id, id) where events.workspace_id = given.workspace_id',
    ).text,
  ).toBe(
    'delete from events using (select $1::uuid as workspace_id, given.* from unnest($2::uuid[]) as given (id)) as given where events.workspace_id = $1::uuid and given.workspace_id = $1::uuid',
  );
});
