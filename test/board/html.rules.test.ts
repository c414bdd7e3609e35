import { describe, expect, test } from 'vitest';
import { duration, pathWith, tree } from '../../src/board/layout.ts';
import { money } from '../../src/board/money.ts';
import { details } from '../../src/board/pages/audit.ts';
import { csvOf } from '../../src/board/pages/sync.ts';
import { html } from '../../src/platform/html.ts';

const hostile = `<img src=x onerror="alert(1)">&'`;
const escaped = '&lt;img src=x onerror=&quot;alert(1)&quot;&gt;&amp;&#39;';

describe('a template', () => {
  test('a template escapes text in elements and attributes, also in arrays and objects', () => {
    expect(html`<p title="${hostile}">${hostile}</p>`.text).toBe(`<p title="${escaped}">${escaped}</p>`);
    expect(html`<p>${[hostile, [hostile]]}</p>`.text).toBe(`<p>${escaped}${escaped}</p>`);
    const object = { toString: () => hostile } as unknown as string;
    expect(html`<p>${object}</p>`.text).toBe(`<p>${escaped}</p>`);
  });

  test('a template keeps nested templates unescaped and renders empty values as nothing', () => {
    expect(html`<ul>${['a', 'b'].map((one) => html`<li>${one}</li>`)}</ul>`.text).toBe(
      '<ul><li>a</li><li>b</li></ul>',
    );
    expect(html`${undefined}${null}${false}${true}${0}${''}`.text).toBe('0');
    expect(html`<a${html` hidden`}${false}>`.text).toBe('<a hidden>');
  });

  test('a template escapes an object that only resembles a nested template', () => {
    const forged = { text: '<b>', constructor: { name: 'Html' } } as unknown as string;
    expect(html`${forged}`.text).toBe('[object Object]');
  });

  test('a template rejects an unquoted value inside a tag, whatever the value', () => {
    const fill = (value: string) => html`<a href=${value}>`;
    for (const value of ['x onclick=alert(1)', 'x'])
      expect(() => fill(value)).toThrow('a value in a tag must be in double quotes: …<a href=');
    expect(() => html`<a ${'onclick'}="x">`).toThrow(TypeError);
    expect(html`1 < 2, ${'x'} > 1`.text).toBe('1 < 2, x > 1');
  });
});

describe('a tree of JSON', () => {
  test('a tree shows names and values as text, and shortens a long text', () => {
    const shown = tree({ [hostile]: hostile, list: [1, true, null], long: 'x'.repeat(1000) }).text;
    expect(shown).not.toContain('<img');
    expect(shown).toContain(`<span class="key">${escaped}</span> <span class="text">${escaped}</span>`);
    expect(shown).toContain('3 elements');
    expect(shown).toContain('and 600 characters more');
  });

  test('a tree has a limited size, however large the value is', () => {
    const wide = Object.fromEntries(Array.from({ length: 10_000 }, (_, n) => [`key${n}`, n]));
    const deep = Array.from({ length: 200 }).reduce<object>((inner) => ({ inner }), {});
    expect(tree(wide as never).text.length).toBeLessThan(60_000);
    expect(tree(wide as never).text).toContain('and 9,600 more');
    expect(tree(Array(50).fill(wide) as never).text.length).toBeLessThan(120_000);
    expect(tree(deep as never).text.length).toBeLessThan(60_000);
  });

  test('a masked tree shows names without values', () => {
    const shown = tree({ colour: 'teal', depth: { number: 42 } }, { masked: true }).text;
    expect(shown).toContain('colour');
    expect(shown).not.toMatch(/teal|42/);
  });
});

test('a duration has at most its two largest units', () => {
  expect([0, 0.44, 9.96, 59, 61, 3600, 90_061, 172_800].map(duration)).toEqual([
    ...['0 s', '0.4 s', '10 s', '59 s', '1 min 1 s', '1 h', '1 d 1 h', '2 d'],
  ]);
});

test('a path contains its non-empty query parameters, encoded', () => {
  expect(pathWith('/users', { workspace: undefined, q: '' })).toBe('/users');
  expect(pathWith('/users', { q: 'a&b=c d' })).toBe('/users?q=a%26b%3Dc+d');
});

test('a CSV line is quoted where needed, and a formula is escaped', () => {
  const row = {
    number: 7,
    synced: false,
    updatedAt: null,
    reason: 'a "quoted", reason',
    payload: '{\n}',
    identifiers: [],
  };
  expect(csvOf({ ...row, identifier: '=cmd()' })).toBe(`7,failed,,'=cmd(),"a ""quoted"", reason","{\n}"\r\n`);
});

describe('details of an audit entry', () => {
  const shown = (detail: Parameters<typeof details>[0]) => html`${details(detail)}`.text;

  test('details are names and values, and an entry without details has no list', () => {
    expect(shown({ name: hostile, count: 2, removed: true })).toBe(
      `<dl class="details wrap"><div><dt>name</dt><dd>${escaped}</dd></div><div><dt>count</dt><dd>2</dd></div><div><dt>removed</dt><dd>true</dd></div></dl>`,
    );
    expect(shown({ changed: ['name', 'schedule'] })).toContain('<dd>name, schedule</dd>');
    expect(shown({})).toBe('');
  });

  test('long and nested values are folded and complete', () => {
    const permissions = Array.from({ length: 38 }, (_, index) => `permission.${index}`);
    expect(shown({ permissions })).toContain(
      `<summary>38 elements</summary>${permissions.join(', ')}</details>`,
    );
    const text = 'word '.repeat(60);
    expect(shown({ text })).toContain(`…</summary>${text}</details>`);
    expect(shown({ from: { name: 'shop' } })).toMatch(/<summary>1 member<\/summary>.*name.*shop/);
  });
});

test('money has the decimals of its currency, and the exact amount in the title if it is rounded', () => {
  expect(money(3697, 'JPY').text).toBe('<span>3,697 JPY</span>');
  expect(money('12.5', 'USD').text).toBe('<span>12.50 USD</span>');
  expect(money(-1234.5, 'KWD').text).toBe('<span>-1,234.500 KWD</span>');
  expect(money('369.7', 'JPY').text).toBe('<span title="369.7 JPY">370 JPY</span>');
  expect(money('12345678901234567890.25', 'EUR').text).toContain('12,345,678,901,234,567,890.25 EUR');
  expect(money(1, hostile).text).toBe(`1 ${escaped}`);
});
