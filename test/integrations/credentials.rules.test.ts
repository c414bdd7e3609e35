import { randomBytes } from 'node:crypto';
import { statSync } from 'node:fs';
import path from 'node:path';
import { v7 as uuidv7 } from 'uuid';
import { describe, expect, test } from 'vitest';
import { integrationKeys, keepIntegrationKey } from '../../src/embedded/address.ts';
import {
  decryptCredentials,
  encryptCredentials,
  keysOf,
  SourceError,
} from '../../src/integrations/source.ts';
import { temporaryFolder } from '../setup/left-behind.ts';

const credentials = { user: 'reader', password: 'pässword"' };
const [key, other] = [randomBytes(32), randomBytes(32)];
const id = uuidv7();

describe('credentials', () => {
  test('are decrypted unchanged, and the encrypted form shows none of them', () => {
    const stored = encryptCredentials(credentials, id, [key]);
    expect(decryptCredentials(stored, id, [key])).toEqual(credentials);
    expect(stored.toString('latin1')).not.toMatch(/reader|user|pass/);
    expect(encryptCredentials(credentials, id, [key])).not.toEqual(stored);
  });

  test('belong to one integration only', () => {
    const stored = encryptCredentials(credentials, id, [key]);
    expect(() => decryptCredentials(stored, uuidv7(), [key])).toThrow(SourceError);
  });

  test('that were changed by a bit, or truncated, are rejected', () => {
    const stored = encryptCredentials(credentials, id, [key]);
    for (let position = 0; position < stored.length; position++) {
      const changed = Buffer.from(stored);
      changed[position]! ^= 1;
      expect(() => decryptCredentials(changed, id, [key])).toThrow(/cannot be decrypted/);
      expect(() => decryptCredentials(stored.subarray(0, position), id, [key])).toThrow(
        /cannot be decrypted/,
      );
    }
  });

  test('the first key encrypts, any key decrypts: a new one is put before the old one', () => {
    const old = encryptCredentials(credentials, id, [key]);
    expect(decryptCredentials(old, id, [other, key])).toEqual(credentials);
    const renewed = encryptCredentials(credentials, id, [other, key]);
    expect(decryptCredentials(renewed, id, [other])).toEqual(credentials);
    expect(() => decryptCredentials(renewed, id, [key])).toThrow(/INTEGRATION_KEY does not contain the key/);
  });

  test('encrypting without a key fails, and the error names the command that creates one', () => {
    expect(() => encryptCredentials(credentials, id, [])).toThrow(
      /INTEGRATION_KEY is not set.*openssl rand -base64 32/,
    );
    const stored = encryptCredentials(credentials, id, [key]);
    expect(() => decryptCredentials(stored, id, [])).toThrow(/INTEGRATION_KEY is not set for this process/);
  });
});

describe('keys', () => {
  test('are read in base64 and hex', () => {
    expect(keysOf(`${key.toString('base64')},${other.toString('hex')}`)).toEqual([key, other]);
    expect(keysOf('')).toEqual([]);
  });

  test('of an embedded installation are followed by one in DATA_DIR, created once for its owner', () => {
    const folder = path.join(temporaryFolder(), 'data');
    const where = { DATA_DIR: folder, DEPLOYMENT_FORM: 'embedded', INTEGRATION_KEY: '' } as const;
    expect(integrationKeys(where)).toEqual([]);
    const kept = keepIntegrationKey(folder);
    expect(keepIntegrationKey(folder)).toBe(kept);
    expect(statSync(path.join(folder, 'integration-key')).mode & 0o777).toBe(0o600);
    expect(integrationKeys(where)).toEqual(keysOf(kept));
    expect(integrationKeys({ ...where, INTEGRATION_KEY: key.toString('hex') })).toEqual([
      key,
      ...keysOf(kept),
    ]);
    expect(integrationKeys({ ...where, DEPLOYMENT_FORM: 'production' })).toEqual([]);
  });
});
