import type { IncomingMessage } from 'node:http';
import { expect, test } from 'vitest';
import { mediaTypeOf, requireJson } from '../../src/edge/body.ts';

const check = (type: string | undefined) => () =>
  requireJson({ headers: { 'content-type': type } } as unknown as IncomingMessage);

test.each([
  'application/json',
  'Application/JSON',
  'application/json;charset=utf-8',
  'application/json ; charset="utf-16"',
  'application/scim+json',
  'application/vnd.api-v2+json; profile="a;b"',
])('accepts the Content-Type %s, the first time and later', (type) => {
  expect(check(type)).not.toThrow();
  expect(check(type)).not.toThrow();
});

test.each([
  undefined,
  '',
  'text/plain',
  'json',
  'application/jsonp',
  'application/json text',
  'text/application/json',
  'application/xml; type=application/json',
  `application/json; comment=${'x'.repeat(200)}`,
])('rejects the Content-Type %s with 415', (type) => {
  expect(check(type)).toThrow(expect.objectContaining({ entry: 'unsupportedMediaType' }));
});

test('the media type of a form has no parameters and is in lower case', () => {
  expect(mediaTypeOf('Application/X-WWW-Form-URLencoded ;charset=UTF-8')).toBe(
    'application/x-www-form-urlencoded',
  );
});
