import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { v7 as uuidv7 } from 'uuid';
import { describe, expect, test } from 'vitest';
import { packageRoot } from '../../../src/platform/files.ts';
import { uuidArray } from '../../../src/store/arrays.ts';
import {
  applyForm,
  isOf,
  setsIn,
  statementForWorkspace,
  statementsWithForm,
  type TransactionScope,
} from '../../../src/store/one-workspace.ts';
import { citusForms, formOf } from '../../../tools/generate/citus-forms.ts';

const [one, other] = [uuidv7(), uuidv7()];
const nothing: TransactionScope = { lastValues: new Map(), workspaceId: undefined };

const INSERT =
  'insert into usage (workspace_id, day) select given.workspace_id, given.day from unnest($1::uuid[], $2::date[]) as given (workspace_id, day)';

/** Returns the statement of a form as it is sent. */
const sentFor = (text: string, values: unknown[], scope = nothing) => applyForm(formOf(text), values, scope);

describe('the form of a statement for one workspace', () => {
  test('names the workspace once, as a scalar parameter, however it is given', () => {
    const binary = uuidArray([one, one], (id) => id);
    for (const given of [[one, one], binary])
      expect(sentFor(INSERT, [given, ['2026-01-01', '2026-01-02']])).toMatchObject({
        values: [one, ['2026-01-01', '2026-01-02']],
        text: expect.stringContaining('(select $1::uuid as workspace_id, given.* from unnest($2::date[])'),
      });
  });

  test('names the workspace of rows in JSON in an additional parameter', () => {
    const text =
      'insert into usage (workspace_id) select given.workspace_id from jsonb_to_recordset($1::jsonb) as given (workspace_id uuid, lane integer)';
    const rows = JSON.stringify([{ workspace_id: one.toUpperCase(), lane: 1 }]);
    expect(sentFor(text, [rows])).toMatchObject({
      values: [rows, one],
      text: expect.stringContaining('(select $2::uuid as workspace_id'),
    });
  });

  test('names the workspace of rows in JSON whose members are spelled as in the code', () => {
    const text =
      'insert into usage (workspace_id) select given."workspaceId" from jsonb_to_recordset($1::jsonb) as given (lane integer, "workspaceId" uuid)';
    const [mine, others] = [one, other].map((workspaceId) => ({ workspaceId, lane: 1 }));
    expect(sentFor(text, [JSON.stringify([mine])])).toMatchObject({
      values: [JSON.stringify([mine]), one],
      text: expect.stringContaining(
        '(select $2::uuid as "workspaceId", given.* from jsonb_to_recordset($1::jsonb) as given (lane integer))',
      ),
    });
    expect(() => sentFor(text, [JSON.stringify([mine, others])])).toThrow('is given 2');
  });

  test('G7: rejects a set with rows of several workspaces', () => {
    const several = [one, other];
    for (const given of [several, uuidArray(several, (id) => id)])
      expect(() => sentFor(INSERT, [given, ['2026-01-01', '2026-01-02']])).toThrow(
        'a statement for one workspace is given 2',
      );
  });

  test('is unchanged if all its tables are central: audit takes rows of any workspace or none', () => {
    const text =
      'insert into audit (workspace_id) select given.workspace_id from jsonb_to_recordset($1::jsonb) as given (workspace_id uuid)';
    const rows = JSON.stringify([{ workspace_id: one }, { workspace_id: other }, {}]);
    const unchanged = { text, values: [rows], isDeclared: false };
    expect(sentFor(text, [rows])).toEqual(unchanged);
    expect(statementForWorkspace(text, [rows], nothing)).toEqual(unchanged);
  });

  test('names the workspace also where it is compared as bytes', () => {
    const text = `select from unnest($1::uuid[]) as given (workspace_id)
      join profiles on uuid_send(profiles.workspace_id) = uuid_send(given.workspace_id)`;
    expect(formOf(text).text).toContain(
      'on profiles.workspace_id = $1::uuid and given.workspace_id = $1::uuid and uuid_send(profiles.workspace_id) = uuid_send($1::uuid)',
    );
  });

  test('has parentheses where two comparisons replace an operand', () => {
    const text = `select from profiles join events on not profiles.workspace_id = events.workspace_id
      where profiles.workspace_id = $1::uuid`;
    expect(formOf(text).text).toContain(
      'on not (profiles.workspace_id = $1::uuid and events.workspace_id = $1::uuid)',
    );
  });

  test('names the workspace of a tuple, and rejects "not" before the tuple', () => {
    const search = '(events.workspace_id, events.id) in (select workspace_id, id from profiles)';
    const of = (condition: string) =>
      formOf(`select from events where events.workspace_id = $1::uuid and ${condition}`).text;
    expect(of(search)).toContain(`and events.workspace_id = $1::uuid and ${search}`);
    expect(() => of(`not ${search}`)).toThrow('Write "not in"');
  });

  test('counts positions in bytes, as the parser does', () => {
    expect(
      formOf(`select 'ä' from profiles join events on profiles.workspace_id = events.workspace_id
      where events.workspace_id = $1::uuid and events.name = 'ö'`).text,
    ).toBe(`select 'ä' from profiles join events on profiles.workspace_id = $1::uuid and events.workspace_id = $1::uuid
      where events.workspace_id = $1::uuid and events.name = 'ö'`);
  });

  test.each([
    'select from unnest($1::text[], $2::uuid[]) as given (email, workspace_id) join profiles using (workspace_id)',
    'select from unnest(array[$1::uuid]) as given (workspace_id) join profiles using (workspace_id)',
    'select from json_array_elements($1::json) as given (workspace_id) join profiles using (workspace_id)',
  ])('does not exist for an unsupported set: %s', (text) => {
    expect(() => formOf(text)).toThrow('the set given is not made from parameters with the workspace first');
  });

  test("uses the workspace's place only for the workspace of its own transaction", () => {
    const inPlaceOf = (location: string | undefined) =>
      sentFor(INSERT, [[one], ['2026-01-01']], { ...nothing, workspaceId: location });
    expect(inPlaceOf(one)).toMatchObject({
      isDeclared: true,
      text: expect.stringContaining(
        'from workspace_places as place cross join unnest($2::date[]) as given (day) where place.workspace_id = $1::uuid',
      ),
    });
    for (const target of [other, undefined]) expect(inPlaceOf(target).isDeclared).toBe(false);
  });

  test('requires the last value of a sequence', () => {
    const text = `insert into left_names (workspace_id, up_to) select given.workspace_id, pg_sequence_last_value('failure_places') from unnest($1::uuid[]) as given (workspace_id)`;
    expect(() => sentFor(text, [[one]])).toThrow('the position of the sequence failure_places is unknown');
    const lastValues = new Map([['failure_places', '7']]);
    expect(sentFor(text, [[one]], { ...nothing, lastValues })).toMatchObject({
      values: [one, '7'],
      text: expect.stringContaining('select given.workspace_id, $2::bigint from'),
    });
  });

  test('omits the condition for rows of earlier releases, which have no workspace', () => {
    const text = `select from unnest($1::uuid[]) as given (workspace_id) join ledger on ${isOf('ledger', 'given')}`;
    expect(formOf(text).text).toContain('on ledger.workspace_id = $1::uuid and');
  });
});

/** Sets of statements without distributed tables. */
const OF_CENTRAL_TABLES = ['src/store/audit.ts'];

describe('the checked-in forms', () => {
  test('generated/citus-forms.json is current; npm run generate writes it', async () => {
    const committed = readFileSync(path.join(packageRoot, 'generated/citus-forms.json'), 'utf8');
    expect(committed).toBe(await citusForms());
  });

  test('every set with workspaces in the code is in a statement with a form', async () => {
    await citusForms();
    const withForm = [...statementsWithForm];
    const collected = sourcesIn('src', 'workers').flatMap(({ file, text }) =>
      setsIn(text).map((set) => ({ file, set })),
    );
    expect(collected.length).toBeGreaterThan(60);
    // A part of a set may be computed.
    const without = collected.filter(
      ({ set }) => !withForm.some((text) => text.includes(set.split('${')[0]!)),
    );
    expect([...new Set(without.map(({ file }) => file))]).toEqual(OF_CENTRAL_TABLES);
  });

  test('a set without a form is rejected', () => {
    expect(() => statementForWorkspace(INSERT, [[one], ['2026-01-01']], nothing)).toThrow(
      'a statement has no form for Citus. Mark it with withCitusForm and run npm run generate',
    );
  });
});

function sourcesIn(...folders: string[]): { file: string; text: string }[] {
  return folders.flatMap((folder) =>
    readdirSync(path.join(packageRoot, folder), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts') && !name.startsWith('generated'))
      .map((name) => path.posix.join(folder, name))
      .map((file) => ({ file, text: readFileSync(path.join(packageRoot, file), 'utf8') })),
  );
}
