import { describe, expect, test } from 'vitest';
import { readForms } from '../../src/preferences/page.ts';
import { NotAChoice, objectsOf, readChoice } from '../../src/preferences/submission.ts';

const NEWS = '019c13ec-a2e2-7000-8000-000000000001';
const OFFERS = '019c13ec-a2e2-7000-8000-000000000002';
const TEXTS = '019c13ec-a2e2-7000-8000-000000000003';
const groups = [
  { id: NEWS, channel: 'email' },
  { id: OFFERS, channel: 'email' },
  { id: TEXTS, channel: 'sms' },
];
const field = (id: string) => `subscription_group_${id}`;
const box = (name: string, value = 'subscribed', rest = '') =>
  `<input type="checkbox" name="${name}" value="${value}" ${rest}>`;
const form = (...controls: string[]) => `<form method="post">${controls.join('')}</form>`;

const choose = (html: string, sent: Record<string, string>) =>
  readChoice(Object.entries(sent), readForms(html).forms, groups);

describe('a box that is not ticked', () => {
  const page = form(box(field(NEWS), 'subscribed', 'checked'), box(field(OFFERS)));

  test('is not sent, and means unsubscribed', () => {
    expect(choose(page, { [field(NEWS)]: 'subscribed' })).toEqual({
      groups: { [NEWS]: 'subscribed', [OFFERS]: 'unsubscribed' },
    });
    expect(choose(page, {})).toEqual({ groups: { [NEWS]: 'unsubscribed', [OFFERS]: 'unsubscribed' } });
  });

  test('for unsubscribing leaves the state unchanged', () => {
    expect(choose(form(box(field(NEWS), 'unsubscribed')), {})).toEqual({ groups: {} });
    expect(choose(form(box('email_global_state', 'unsubscribed')), {})).toEqual({ groups: {} });
  });

  test('for email as a whole unsubscribes from all email', () => {
    expect(choose(form(box('email_global_state', 'opted_in')), {})).toEqual({
      emailGlobal: 'unsubscribed',
      groups: { [NEWS]: 'unsubscribed', [OFFERS]: 'unsubscribed' },
    });
  });

  test('counts only in the submitted form', () => {
    const two =
      form(box(field(NEWS)), '<input name="which" value="1">') +
      form(box(field(OFFERS)), '<button name="b">');
    expect(choose(two, { which: '1' })).toEqual({ groups: { [NEWS]: 'unsubscribed' } });
    expect(choose(two, { b: '' })).toEqual({ groups: { [OFFERS]: 'unsubscribed' } });
    expect(choose(two, {})).toEqual({ groups: {} });
  });

  test('is ignored if it is disabled, outside of a form or in a comment', () => {
    const page = `${box(field(NEWS))}<!-- ${form(box(field(NEWS)))} -->${form(box(field(NEWS), 'subscribed', 'disabled'))}`;
    expect(choose(page, {})).toEqual({ groups: {} });
  });
});

describe('a submitted form', () => {
  test('uses a hidden field before an unticked box: the last value counts', () => {
    const page = form(`<input type="hidden" name="${field(NEWS)}" value="unsubscribed">`, box(field(NEWS)));
    const sent = (...values: string[]) =>
      readChoice(
        values.map((value) => [field(NEWS), value]),
        readForms(page).forms,
        groups,
      );
    expect(sent('unsubscribed')).toEqual({ groups: { [NEWS]: 'unsubscribed' } });
    expect(sent('unsubscribed', 'subscribed')).toEqual({ groups: { [NEWS]: 'subscribed' } });
  });

  test.each(['subscribed', 'opted_in'])('changes no group with the global state %s', (state) => {
    expect(choose('', { email_global_state: state })).toEqual({ emailGlobal: state, groups: {} });
  });

  test('unsubscribes from all email groups, shown or not, whatever else is submitted', () => {
    const sent = {
      [field(NEWS)]: 'subscribed',
      [field(TEXTS)]: 'subscribed',
      email_global_state: 'unsubscribed',
    };
    expect(choose('', sent)).toEqual({
      emailGlobal: 'unsubscribed',
      groups: { [NEWS]: 'unsubscribed', [OFFERS]: 'unsubscribed', [TEXTS]: 'subscribed' },
    });
  });

  test('ignores groups of other workspaces, archived groups and other fields', () => {
    const other = '019c13ec-a2e2-7000-8000-00000000000f';
    expect(
      choose('', { [field(other)]: 'subscribed', csrf: 'x', subscription_group_: 'subscribed' }),
    ).toEqual({
      groups: {},
    });
  });

  test('is rejected for any other state, by its field', () => {
    expect(() => choose('', { [field(NEWS)]: 'on' })).toThrow(NotAChoice);
    expect(() => choose('', { [field(NEWS)]: 'opted_in' })).toThrow(`subscription_group_${NEWS}`);
    expect(() => choose('', { email_global_state: '' })).toThrow('email_global_state');
  });

  test('becomes objects for the user: the address first, then each group', () => {
    let made = 0;
    const choice = {
      emailGlobal: 'subscribed',
      groups: { [NEWS]: 'subscribed', [TEXTS]: 'unsubscribed' },
    } as const;
    const objects = objectsOf(choice, { externalId: 'ada', email: 'ada@example.com' }, () => `id-${++made}`);
    expect(objects).toEqual([
      {
        kind: 'email_change',
        id: 'id-1',
        index: 0,
        email: 'ada@example.com',
        state: 'subscribed',
      },
      {
        kind: 'group_state',
        id: 'id-2',
        index: 1,
        identifier: { external_id: 'ada' },
        subscription_group_id: NEWS,
        subscription_state: 'subscribed',
      },
      {
        kind: 'group_state',
        id: 'id-3',
        index: 2,
        identifier: { external_id: 'ada' },
        subscription_group_id: TEXTS,
        subscription_state: 'unsubscribed',
      },
    ]);
  });
});
