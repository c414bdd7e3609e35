import { v7 as uuidv7 } from 'uuid';
import { describe, expect, test } from 'vitest';
import { uuidArray } from '../../../src/store/arrays.ts';
import { isOf, statementForWorkspace, type TransactionScope } from '../../../src/store/one-workspace.ts';

const [one, other] = [uuidv7(), uuidv7()];
const nothing: TransactionScope = { lastValues: new Map(), workspaceId: undefined };

const INSERT =
  'insert into usage (workspace_id, day) select given.workspace_id, given.day from unnest($1::uuid[], $2::date[]) as given (workspace_id, day)';

describe('the form of a statement for one workspace', () => {
  test('names the workspace once, as a scalar parameter, however it is given', () => {
    const binary = uuidArray([one, one], (id) => id);
    for (const given of [[one, one], binary])
      expect(statementForWorkspace(INSERT, [given, ['2026-01-01', '2026-01-02']], nothing)).toMatchObject({
        values: [one, ['2026-01-01', '2026-01-02']],
        text: expect.stringContaining('(select $1::uuid as workspace_id, given.* from unnest($2::date[])'),
      });
  });

  test('names the workspace of rows in JSON in an additional parameter', () => {
    const text =
      'insert into usage (workspace_id) select given.workspace_id from jsonb_to_recordset($1::jsonb) as given (workspace_id uuid, lane integer)';
    const rows = JSON.stringify([{ workspace_id: one.toUpperCase(), lane: 1 }]);
    expect(statementForWorkspace(text, [rows], nothing)).toMatchObject({
      values: [rows, one],
      text: expect.stringContaining('(select $2::uuid as workspace_id'),
    });
  });

  test('names the workspace of rows in JSON whose members are spelled as in the code', () => {
    const text =
      'insert into usage (workspace_id) select given."workspaceId" from jsonb_to_recordset($1::jsonb) as given ("workspaceId" uuid, lane integer)';
    const [mine, others] = [one, other].map((workspaceId) => ({ workspaceId, lane: 1 }));
    expect(statementForWorkspace(text, [JSON.stringify([mine])], nothing)).toMatchObject({
      values: [JSON.stringify([mine]), one],
      text: expect.stringContaining(
        '(select $2::uuid as "workspaceId", given.* from jsonb_to_recordset($1::jsonb) as given (lane integer))',
      ),
    });
    expect(() => statementForWorkspace(text, [JSON.stringify([mine, others])], nothing)).toThrow(
      'is given 2',
    );
  });

  test('G7: rejects a set with rows of several workspaces', () => {
    const several = [one, other];
    for (const given of [several, uuidArray(several, (id) => id)])
      expect(() => statementForWorkspace(INSERT, [given, ['2026-01-01', '2026-01-02']], nothing)).toThrow(
        'a statement for one workspace is given 2',
      );
  });

  test('is unchanged if all its tables are central: audit takes rows of any workspace or none', () => {
    const text =
      'insert into audit (workspace_id) select given.workspace_id from jsonb_to_recordset($1::jsonb) as given (workspace_id uuid)';
    const rows = JSON.stringify([{ workspace_id: one }, { workspace_id: other }, {}]);
    expect(statementForWorkspace(text, [rows], nothing)).toEqual({ text, values: [rows], isDeclared: false });
  });

  test('names the workspace also where it is compared as bytes', () => {
    const text = `select from unnest($1::uuid[]) as given (workspace_id)
      join profiles on uuid_send(profiles.workspace_id) = uuid_send(given.workspace_id)`;
    expect(statementForWorkspace(text, [[one]], nothing).text).toContain(
      'profiles.workspace_id = $1::uuid and',
    );
  });

  test("uses the workspace's place only for the workspace of its own transaction", () => {
    const inPlaceOf = (location: string | undefined) =>
      statementForWorkspace(INSERT, [[one], ['2026-01-01']], { ...nothing, workspaceId: location });
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
    expect(() => statementForWorkspace(text, [[one]], nothing)).toThrow(
      'the position of the sequence failure_places is unknown',
    );
    const lastValues = new Map([['failure_places', '7']]);
    expect(statementForWorkspace(text, [[one]], { ...nothing, lastValues })).toMatchObject({
      values: [one, '7'],
      text: expect.stringContaining('select given.workspace_id, $2::bigint from'),
    });
  });

  test('omits the condition for rows of earlier releases, which have no workspace', () => {
    const text = `select from unnest($1::uuid[]) as given (workspace_id) join ledger on ${isOf('ledger', 'given')}`;
    expect(statementForWorkspace(text, [[one]], nothing).text).toContain(
      'on ledger.workspace_id = $1::uuid and',
    );
  });
});
