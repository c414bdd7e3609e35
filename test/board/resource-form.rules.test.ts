import { expect, test } from 'vitest';
import { filterFields, readForm } from '../../src/board/resource-form.ts';
import { html } from '../../src/platform/html.ts';
import { choice, optional, type SecretSource, secret, text, time } from '../../src/resources/fields.ts';

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
