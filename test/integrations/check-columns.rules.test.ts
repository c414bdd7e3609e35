import { describe, expect, test } from 'vitest';
import { checkColumns } from '../../src/integrations/columns.ts';
import { type IntegrationKind, SourceError } from '../../src/integrations/source.ts';

function check(kind: IntegrationKind, names: string, serviceIdField = 'service_id') {
  const columns = names.split(' ').map((name) => ({ name, type: 'text' }));
  return () => checkColumns(kind, columns, serviceIdField);
}

describe('columns', () => {
  test.each(['external_id', 'alias_name alias_label', 'service_id', 'email', 'phone', 'email phone'])(
    '%s with UPDATED_AT and PAYLOAD are enough, in any case and among other columns',
    (names) => {
      for (const kind of ['attributes', 'events', 'purchases'] as const) {
        check(kind, `updated_at payload ${names} other Other`)();
        check(kind, `UPDATED_AT PAYLOAD ${names.toUpperCase()}`)();
      }
    },
  );

  test('the service id has its wire name', () => {
    check('attributes', 'UPDATED_AT PAYLOAD CRM_ID', 'crm_id')();
    expect(check('attributes', 'UPDATED_AT PAYLOAD SERVICE_ID', 'crm_id')).toThrow(
      /one of EXTERNAL_ID, .*CRM_ID/,
    );
  });

  test('deletes require an identifier that is unique to a user, and no PAYLOAD', () => {
    check('deletes', 'UPDATED_AT EXTERNAL_ID EMAIL')();
    expect(check('deletes', 'UPDATED_AT EMAIL')).toThrow(
      'a column with an identifier is missing; add one of EXTERNAL_ID, ALIAS_NAME with ALIAS_LABEL, SERVICE_ID (the columns are: UPDATED_AT, EMAIL)',
    );
    expect(check('deletes', 'UPDATED_AT EXTERNAL_ID PAYLOAD')).toThrow(
      /PAYLOAD is not allowed in a sync of deletes/,
    );
  });

  test.each([
    ['PAYLOAD EXTERNAL_ID', 'the column UPDATED_AT is missing'],
    ['UPDATED_AT EXTERNAL_ID', 'the column PAYLOAD is missing'],
    ['UPDATED_AT PAYLOAD', 'a column with an identifier is missing'],
    ['UPDATED_AT PAYLOAD ALIAS_NAME', 'ALIAS_NAME with ALIAS_LABEL'],
    ['UPDATED_AT PAYLOAD email EMAIL', 'the column EMAIL exists more than once'],
  ])('%s: %s', (names, rule) => {
    expect(check('events', names)).toThrow(rule);
    expect(check('events', names)).toThrow(SourceError);
  });
});
