import { expect, test } from 'vitest';
import { filterFields, formFields, readForm } from '../../src/board/resource-form.ts';
import { html } from '../../src/platform/html.ts';
import {
  choice,
  listedIn,
  MAX_SUGGESTIONS,
  optional,
  type SecretSource,
  secret,
  text,
  time,
} from '../../src/resources/fields.ts';

const fields = {
  at: time({ label: 'Time', help: 'time' }),
  kind: choice({ label: 'Kind', help: 'kind' }, ['webhook', 'kafka']),
  user: optional(text({ label: 'User', help: 'user' }, (given) => given)),
  id: optional(text({ label: 'Id', help: 'id' }, (given) => given, { isExact: true })),
  secret: secret({ label: 'Secret', help: 'secret' }),
};

const read = (sent: Record<string, string>) =>
  readForm({ fields: (name) => (name in sent ? [sent[name]!] : []) }, fields);

test('a form keeps white space of an exact value', () => {
  const { values } = read({ at: '2026-11-23T08:00:00Z', kind: 'kafka', id: ' ada ', secret: '' });
  expect(values.id).toBe(' ada ');
});

test('a filter by a value that is not among the choices stays selected', () => {
  const choices = { user: { ada: 'Ada' } };
  const render = (given: string) =>
    html`${filterFields({ user: fields.user }, { query: () => given, choices })}`.text;
  expect(render('old')).toContain('<option value="old" selected>old</option>');
  expect(render('ada').match(/<option/g)).toHaveLength(2);
  expect(render('').match(/<option/g)).toHaveLength(2);
});

test('a form trims every value except a secret', async () => {
  const { values, problems } = read({
    at: ' 2026-11-23T08:00:00Z\t',
    kind: ' kafka ',
    user: ' us ',
    secret: ' hush hush ',
  });
  expect(problems).toEqual({});
  expect(values).toMatchObject({ at: new Date('2026-11-23T08:00:00Z'), kind: 'kafka', user: 'us' });
  expect(await (values.secret as SecretSource).read('Secret')).toBe(' hush hush ');
});

test('a form treats white space as an empty value, and an empty secret as missing', async () => {
  const { values, problems } = read({ at: ' ', kind: 'kafka', user: '\t', secret: '' });
  expect(problems).toEqual({ at: 'Time is required.' });
  expect(values.user).toBeUndefined();
  expect((values.secret as SecretSource).isGiven).toBe(false);
  await expect((values.secret as SecretSource).read('Secret')).rejects.toThrow('a secret is required');
});

test('a listed field is a select of its suggestions, and a text field if they may be incomplete', () => {
  const workspace = listedIn('Choose a workspace', text({ label: 'Workspace', help: 'name' }, String));
  const render = (suggestions: string[], given?: string) =>
    html`${formFields(
      { workspace },
      {
        ...{ id: 'create', suggestions: { workspace: suggestions } },
        sent: given === undefined ? undefined : { given: { workspace: [given] }, problems: {} },
      },
    )}`.text;
  const shown = render(['shop', 'school'], 'school');
  expect(shown).toMatch(
    /<select name="workspace"[^>]* required><option value="">Choose a workspace<\/option>/,
  );
  expect(shown).toContain('<option value="school" selected>school</option>');
  // A value that was sent is kept, for example the id of a workspace.
  expect(render(['shop'], 'an id')).toContain('<option value="an id" selected>an id</option>');
  const many = Array.from({ length: MAX_SUGGESTIONS }, (_, index) => `shop-${index}`);
  for (const suggestions of [many, []]) expect(render(suggestions)).toContain('<input name="workspace"');
});
