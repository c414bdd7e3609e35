import { expect } from 'vitest';

/**
 * Expects the headers that every response of a web process has. @param limits pattern of the three
 * X-RateLimit headers
 */
export function expectCommonHeaders(headers: Headers, limits: RegExp): void {
  expect(headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/);
  expect(headers.get('x-content-type-options')).toBe('nosniff');
  for (const name of ['limit', 'remaining', 'reset']) {
    expect(headers.get(`x-ratelimit-${name}`), `X-RateLimit-${name}`).toMatch(limits);
  }
}
