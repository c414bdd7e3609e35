import { expect, test } from 'vitest';
import { readConfig } from '../../src/platform/config.ts';
import { createTargetsGuard } from '../../src/processes/metrics.ts';

const requestFrom = (remoteAddress: string | undefined, headers: Record<string, string>) =>
  ({ socket: { remoteAddress }, headers: { host: '127.0.0.1:3000', ...headers } }) as never;

test.each<[string | undefined, Record<string, string>, boolean]>([
  ['127.0.0.1', {}, true],
  ['127.8.0.1', {}, true],
  ['::1', {}, true],
  ['::ffff:127.0.0.1', {}, true],
  ['10.1.2.3', {}, false],
  ['::ffff:10.1.2.3', {}, false],
  ['1.127.0.0', {}, false],
  [undefined, {}, false],
  ['127.0.0.1', { 'x-forwarded-for': '127.0.0.1' }, false],
  ['127.0.0.1', { forwarded: 'for=127.0.0.1' }, false],
  ['127.0.0.1', { via: '1.1 proxy' }, false],
  ['127.0.0.1', { 'x-real-ip': '127.0.0.1' }, false],
])('without METRICS_TOKEN, %s (%o) may read the targets: %s', (address, headers, isAllowed) => {
  expect(createTargetsGuard('', readConfig({}))(requestFrom(address, headers))).toBe(isAllowed);
});

test('with METRICS_TOKEN, only requests with the token may read the targets, from anywhere', () => {
  const guard = createTargetsGuard('a-token', readConfig({ TRUST_PROXY_HOPS: '1' }));
  expect(guard(requestFrom('10.1.2.3', { authorization: 'Bearer a-token', via: '1.1 proxy' }))).toBe(true);
  expect(guard(requestFrom('127.0.0.1', {}))).toBe(false);
});

test.each([{ TRUST_PROXY_HOPS: '1' }, { PUBLIC_URL: 'https://api.example.com' }])(
  'behind a proxy (%o), METRICS_TOKEN is required: the proxy may add no header',
  (settings) => {
    expect(createTargetsGuard('', readConfig(settings))(requestFrom('127.0.0.1', {}))).toBe(false);
  },
);

test.each([
  ['127.0.0.1:3000', true],
  ['[::1]:3000', true],
  ['localhost:3000', true],
  ['rebound.example:3000', false],
  ['127.0.0.1.example', false],
  ['', false],
])('without METRICS_TOKEN, a loopback request with the Host %j may read the targets: %s', (host, allowed) => {
  expect(createTargetsGuard('', readConfig({}))(requestFrom('127.0.0.1', { host }))).toBe(allowed);
});
