import { integrationKeys } from '../embedded/address.ts';
import { type Credentials, encryptCredentials, NoIntegrationKey } from '../integrations/source.ts';
import type { Config } from '../platform/config.ts';
import { Refusal } from './refusal.ts';

/** Checks an endpoint URL. It must not contain credentials, because definitions are shown unmasked. */
export function requireEndpoint(endpoint: string): void {
  const { protocol, username, password } = URL.canParse(endpoint)
    ? new URL(endpoint)
    : { protocol: '', username: '', password: '' };
  if (!/^https?:$/.test(protocol) || username !== '' || password !== '')
    throw new Refusal(
      '--endpoint must be a URL that starts with http:// or https://, without user and password',
      'endpoint',
    );
}

/** Encrypts credentials for the database. @throws {Refusal} without INTEGRATION_KEY */
export function encryptSecret(credentials: Credentials, id: string, config: Config): Buffer {
  try {
    return encryptCredentials(credentials, id, integrationKeys(config));
  } catch (error) {
    throw error instanceof NoIntegrationKey ? new Refusal(error.message) : error;
  }
}

/** Returns a warning for the console if it has no INTEGRATION_KEY. @param possible the thing that can be created without one */
export const warnWithoutKey = (config: Config, possible: string): string | undefined =>
  integrationKeys(config).length > 0
    ? undefined
    : `INTEGRATION_KEY is not set for the console (process board), so it cannot store secrets. Set it to the value that the sync processes have, and restart board. Until then, only ${possible} can be created.`;
