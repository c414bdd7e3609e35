import { describe, expect, test } from 'vitest';
import { formProblem, type PageForms, readForms } from '../../src/preferences/page.ts';

const NEWS = 'subscription_group_019c13ec-a2e2-7000-8000-000000000001';
const URL = 'https://penstock.example/preferences/x';
const box = (name: string, rest = '') => `<input type="checkbox" name="${name}" value="subscribed" ${rest}>`;
const form = (inside: string, rest = '') => `<form method="post" action="${URL}" ${rest}>${inside}</form>`;

/** Returns the names of each form's controls, and then the names of controls outside of forms. */
const names = (html: string) => {
  const { forms, stray }: PageForms = readForms(html);
  return [...forms.map(({ fields }) => fields), stray].map((fields) => fields.map(({ name }) => name));
};

describe('a control belongs to the form that a browser sends it with', () => {
  test.each([
    ['the one around it', form(box('a')) + form(box('b')), [['a'], ['b'], []]],
    ['the form that it names, before it', form('', 'id="f"') + box('a', 'form="f"'), [['a'], []]],
    ['the form that it names, after it', box('a', 'form="f"') + form(box('b'), 'id="f"'), [['b', 'a'], []]],
    [
      'the form that it names, not the one around it',
      form(box('a', 'form="f"')) + form('', 'id="f"'),
      [[], ['a'], []],
    ],
    [
      'the first form of that id',
      box('a', 'form="f"') + form('', 'id="f"') + form('', 'id="f"'),
      [['a'], [], []],
    ],
    [
      'no form, if it names a missing one',
      form(box('a', 'form="g"')) + box('b', 'form=""'),
      [[], ['a', 'b']],
    ],
    ['no form, if it is outside of all forms', box('a') + form(''), [[], ['a']]],
    [
      'the outer one, of two forms within each other',
      '<form method="post"><form>'.concat(box('a'), '</form>'),
      [['a'], []],
    ],
    [
      'no form while it is disabled, itself or its fieldset',
      form(
        `${box('a', 'disabled')}<fieldset disabled><fieldset>${box('b')}</fieldset>${box('c')}</fieldset>${box('d')}`,
      ),
      [['d'], []],
    ],
    ['no form in a template', form(`<template>${box('a')}</template>`), [[], []]],
    [
      'no form when it is never sent',
      form('<input type="reset" name="a"><button type="button" name="b"></button><button name="c"></button>'),
      [['c'], []],
    ],
  ])('%s', (_, html, expected) => {
    expect(names(html)).toEqual(expected);
  });
});

describe('a page whose choices would not be submitted is reported', () => {
  test.each([
    ['a field in no form', box(NEWS), `the field ${NEWS} is outside of every form`],
    ['a field that names a missing form', form('') + box(NEWS, 'form="f"'), 'is outside of every form'],
    ['a form that is not posted', `<form action="${URL}">${box(NEWS)}</form>`, 'must have method="post"'],
    [
      'a form for another page',
      `<form method="post" action="/users/track">${box(NEWS)}</form>`,
      'must have action="{{preference_center_submit_url}}"',
    ],
    ['a form with files', form(box(NEWS), 'enctype="multipart/form-data"'), 'enctype'],
    [
      'a box without a value',
      form(`<input type="checkbox" name="${NEWS}">`),
      "has the value 'on': it must be one of subscribed, unsubscribed",
    ],
    [
      'a state that there is not',
      form(`<button name="email_global_state" value="no">`),
      'it must be one of subscribed, unsubscribed, opted_in',
    ],
  ])('%s', (_, html, problem) => {
    expect(formProblem(readForms(html), URL)).toContain(problem);
  });

  test.each([
    ['fields in a form, and joined to it', form(box(NEWS), 'id="f"') + box('email_global_state', 'form="f"')],
    ['a form that is sent to its own address', `<form METHOD="Post" action="">${box(NEWS)}</form>`],
    ['a choice from a list', form(`<select name="${NEWS}"><option value="subscribed">Yes</select>`)],
    ['a search form next to it', '<form action="/search"><input name="q"></form><input name="stray">'],
    ['no form at all', '<p>Saved</p>'],
  ])('and not: %s', (_, html) => {
    expect(formProblem(readForms(html), URL)).toBeUndefined();
  });
});
