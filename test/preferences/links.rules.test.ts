import { randomBytes } from 'node:crypto';
import { expect, test } from 'vitest';
import { isSigned, type Link, readLink, signLink } from '../../src/preferences/link.ts';

const key = randomBytes(32);
const link: Link = {
  workspaceId: '019c13ec-a2e2-7b61-8f0c-55a3d7000001',
  centerId: '019c13ec-a2e2-7b61-8f0c-55a3d7000002',
  profileId: '019c13ec-a2e2-7b61-8f0c-55a3d4000000',
  madeAt: Date.UTC(2026, 0, 31, 12),
  expiresAt: Date.UTC(2026, 3, 31, 12),
};
const token = signLink(link, key);

const opens = (text: string, secret: Uint8Array = key) =>
  readLink(text) !== undefined && isSigned(text, secret);

test('a link contains its page and expiry, in characters that need no escaping', () => {
  expect(readLink(token)).toEqual(link);
  expect(opens(token)).toBe(true);
  expect(encodeURIComponent(token)).toBe(token);
});

test('a link with any byte changed is rejected', () => {
  const bytes = Buffer.from(token, 'base64url');
  for (let position = 0; position < bytes.length; position++) {
    for (const bit of [1, 128]) {
      const changed = Buffer.from(bytes);
      changed[position]! ^= bit;
      expect(opens(changed.toString('base64url')), `byte ${position}`).toBe(false);
    }
  }
});

test('a link with any character changed is rejected, also if it decodes to the same bytes', () => {
  for (let index = 0; index < token.length; index++) {
    for (const character of ['A', '_', '-', '+', '/', '=', '%', '.', ' ', '\0']) {
      if (token[index] === character) continue;
      const changed = token.slice(0, index) + character + token.slice(index + 1);
      expect(opens(changed), `character ${index}: ${character}`).toBe(false);
    }
  }
  for (const changed of [
    '',
    token.slice(1),
    token.slice(0, -1),
    `${token}A`,
    `${token}=`,
    token.slice(0, 60),
  ]) {
    expect(opens(changed)).toBe(false);
  }
});

test('a link signed with the key of another workspace is rejected', () => {
  expect(opens(token, randomBytes(32))).toBe(false);
  expect(opens(signLink(link, randomBytes(32)))).toBe(false);
});
