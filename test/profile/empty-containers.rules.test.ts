import { describe, expect, test } from 'vitest';
import { createMapping, type MappingRules } from '../../src/import/mapping.ts';
import { vendorFormats } from '../../src/import/vendor.ts';
import { createBody } from '../../src/operations/preference-center/schemas.ts';
import { usersAliasNew } from '../../src/operations/users.alias.new.ts';
import { newId } from '../../src/platform/ids.ts';
import type { Json } from '../../src/profile/json.ts';
import { compile } from '../../src/schemas/compile.ts';
import { toObject } from '../../workers/sync/row-object.ts';
import { callerOf } from '../operations/caller.ts';
import { planner } from '../operations/plan.ts';
import { deltaOf, errorOf } from './normalized.ts';

const { attributes, event, purchase } = planner();

describe('an empty array in place of an object is an empty object', () => {
  test('as the properties of an event and of a purchase', () => {
    for (const one of [event, purchase] as ((object: Record<string, Json>) => unknown)[]) {
      const sent = one({ properties: [] });
      expect(sent).toMatchObject({ kind: expect.any(String) });
      expect(sent).not.toHaveProperty('properties');
      expect(one({ properties: [1] })).toBe("'properties' is not valid: it must be an object");
    }
  });

  test('as an alias next to another identifier, in each array', () => {
    expect(attributes({ external_id: 'ada', user_alias: [], plan: 'pro' })).toMatchObject({
      identifier: { external_id: 'ada' },
    });
    expect(attributes({ user_alias: [], email: 'ada@example.com' })).toMatchObject({
      identifier: { email: 'ada@example.com' },
    });
    expect(event({ user_alias: [] })).toMatchObject({ identifier: { external_id: 'ada' } });
    expect(purchase({ user_alias: [] })).toMatchObject({ identifier: { external_id: 'ada' } });
  });

  test('as the only identifier, which matches no user', () => {
    expect(attributes({ user_alias: [], plan: 'pro' })).toBe(
      "'external_id', 'service_id', 'user_alias', 'email' or 'phone' is required",
    );
    expect(attributes({ external_id: 'ada', user_alias: ['x'] })).toBe(
      "'user_alias' is not valid: it must be an object with 'alias_name' and 'alias_label'",
    );
  });

  test('as an alias next to an import of push tokens', () => {
    const push_tokens = [{ app_id: 'app', token: 'token' }];
    expect(attributes({ push_token_import: true, user_alias: [], push_tokens })).toMatchObject({
      push_tokens: [{ token: 'token' }],
    });
  });

  test('as an account of a social network', () => {
    expect(deltaOf({ facebook: [], twitter: [] })).toEqual({ standard: { facebook: {}, twitter: {} } });
  });

  test('as an element of an array of objects', () => {
    expect(deltaOf({ pets: [{ name: 'Rex' }, []] })).toEqual({ set: { pets: [{ name: 'Rex' }, {}] } });
    expect(deltaOf({ pets: [[]] })).toEqual({ set: { pets: [{}] } });
    expect(errorOf({ pets: [[1]] })).toMatch(/^'pets' is not valid: an array must hold/);
    expect(errorOf({ pets: ['Rex', []] })).toMatch(/^'pets' is not valid: an array must hold/);
  });

  test('as an object that $add and $update put into an array of objects', () => {
    expect(deltaOf({ pets: { $add: [[]] } })).toEqual({
      change: { pets: { objects: { merge: false, add: [{}] } } },
    });
    const match = { $identifier_key: 'id', $identifier_value: 1 };
    expect(deltaOf({ pets: { $update: [{ ...match, $new_object: [] }] } })).toEqual({
      change: { pets: { objects: { merge: false, update: [{ key: 'id', value: 1, new_object: {} }] } } },
    });
  });

  test('as the alias object of a new alias whose name is in the same element', () => {
    const body = {
      user_aliases: [{ external_id: 'ada', alias_name: 'a', alias_label: 'l', user_alias: [] }],
    };
    const { objects } = usersAliasNew().plan(callerOf(newId(), { now: 0 }), body);
    expect(objects).toMatchObject([{ user_alias: { alias_name: 'a', alias_label: 'l' } }]);
  });

  test('as an element of an array, whose missing members are reported', () => {
    const valid = { alias_name: 'a', alias_label: 'l' };
    const { reply } = usersAliasNew().plan(callerOf(newId(), { now: 0 }), { user_aliases: [valid, []] });
    expect(reply.body).toMatchObject({
      errors: [{ type: "'alias_name' is not valid: it must be a non-empty string", index: 1 }],
    });
  });

  test('as the options of a preference center', () => {
    const isBody = compile(createBody);
    const html = '<p>x</p>';
    const body = { name: 'x', preference_center_page_html: html, confirmation_page_html: html };
    expect(isBody({ ...body, options: [] })).toBe(true);
    expect(isBody({ ...body, options: [1] })).toBe(false);
  });

  test('as the payload of a row of a warehouse', () => {
    const row = { updatedAt: '2026-01-01T00:00:00.000Z', identifiers: { external_id: 'ada' }, payload: '[]' };
    const rules = { kind: 'attributes', serviceIdField: 'service_id', updateExistingOnly: false } as const;
    expect(toObject(row as never, rules)).toEqual({
      object: { external_id: 'ada', _update_existing_only: false },
    });
  });

  test('as the properties of an event of Currents', () => {
    const row = { event_type: 'users.behaviors.CustomEvent', time: 1, external_user_id: 'ada', name: 'seen' };
    for (const properties of [[], '[]', '{}'] as Json[])
      expect(vendorFormats['braze-currents'].translate({ ...row, properties }, 'events')).toMatchObject({
        sent: [{ object: { properties: {} } }],
      });
  });

  test('as a column of properties next to columns of single properties', () => {
    const rules: MappingRules = {
      ...{ type: 'events', map: [], ignore: [], layout: 'csv', serviceIdField: 'service_id' },
    };
    const columns = ['external_id', 'name', 'time', 'size', 'properties'];
    const { mapping } = createMapping(rules, columns, 'events.csv');
    const values = { external_id: 'ada', name: 'seen', time: '2026-01-01', size: 'xl', properties: '[]' };
    expect(mapping(values)).toMatchObject({ object: { properties: { size: 'xl' } } });
  });
});

test('an empty array as the value of a custom attribute or of a property stays an array', () => {
  expect(deltaOf({ list: [] })).toEqual({ set: { list: [] } });
  expect(deltaOf({ object: { list: [] } })).toEqual({ set: { object: { list: [] } } });
  expect(event({ properties: { list: [] } })).toMatchObject({ properties: { list: [] } });
});
