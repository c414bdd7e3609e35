import { expect, test } from 'vitest';
import { ConfigError, readConfig } from '../../src/platform/config.ts';
import { documentOf } from '../../src/preferences/page.ts';
import { createLinkSettings } from '../../src/preferences/settings.ts';
import { threadTime } from '../setup/thread-time.ts';

test.each([
  [{ PUBLIC_URL: 'https://choices.example.com' }, 'https://choices.example.com/preferences/token'],
  [{ PUBLIC_URL: 'https://example.com/penstock/' }, 'https://example.com/penstock/preferences/token'],
  [{}, 'http://127.0.0.1:3000/preferences/token'],
  [{ HOST: '0.0.0.0', PORT: '8080' }, 'http://127.0.0.1:8080/preferences/token'],
])('links with %j begin with the public address', (env, url) => {
  expect(createLinkSettings(readConfig(env)).urlOf('token')).toBe(url);
});

test.each([
  'example.com',
  'ftp://example.com',
  'https://a; script-src *',
  "https://a'b",
  'https://a?b',
  'https://a b',
])('PUBLIC_URL=%s is rejected', (PUBLIC_URL) => {
  expect(() => readConfig({ PUBLIC_URL })).toThrow(ConfigError);
});

test('a page has title, viewport and icons in its head, escaped', () => {
  const head = {
    title: 'A & <b>',
    options: {
      'meta-viewport-content': 'width="1"',
      'links-tags': [{ rel: 'icon', href: 'https://example.com/"x', onload: 'x' }],
    },
  };
  const elements = [
    '<title>A &amp; &lt;b&gt;</title>',
    '<meta name="viewport" content="width=&quot;1&quot;">',
    '<link rel="icon" href="https://example.com/&quot;x">',
  ];
  const fragment = documentOf('<p>page</p>', head);
  expect(fragment).toMatch(/^<!doctype html>\n<html>\n<head>\n<meta charset="utf-8">/);
  for (const element of elements) expect(fragment).toContain(element);
  const whole = documentOf(
    '<!DOCTYPE html><html lang="en"><head><title>Own</title></head><body>x</body></html>',
    head,
  );
  expect(whole).toMatch(/^<!DOCTYPE html><html lang="en"><head>\n<meta charset="utf-8">/);
  expect(whole).not.toContain(elements[0]!);
  for (const element of elements.slice(1)) expect(whole).toContain(element);
});

test.each(['<html>', '<title>', ''])(
  'a page of %s and a million characters of open tags is built in under a second',
  (begin) => {
    for (const tag of ['<head ', '<html ', '<title ']) {
      const page = begin + tag.repeat(1_000_000 / tag.length);
      const started = threadTime();
      expect(documentOf(page, { title: 'A', options: {} })).toContain(page.slice(-100));
      expect(threadTime() - started, tag).toBeLessThan(1000);
    }
  },
);
