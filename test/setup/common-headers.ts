import { expect } from 'vitest';

/** What every answer of the web process has. @param limits what the three X-RateLimit headers match */
export function expectCommonHeaders(headers: Headers, limits: RegExp): void {
  expect(headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/);
  expect(headers.get('x-content-type-options')).toBe('nosniff');
  for (const name of ['limit', 'remaining', 'reset']) {
    expect(headers.get(`x-ratelimit-${name}`), `X-RateLimit-${name}`).toMatch(limits);
  }
}
