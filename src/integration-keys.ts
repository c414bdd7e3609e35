import type { Config } from './config.ts';
import { readIntegrationKey } from './embedded/integration-key.ts';
import { keysOf } from './integrations/credentials.ts';

/**
 * The keys of credentials: those of INTEGRATION_KEY, then, of an embedded installation, the one in DATA_DIR. The first
 * encrypts, any decrypts.
 */
export function integrationKeys({
  INTEGRATION_KEY,
  DATABASE_URL,
  DATA_DIR,
}: Pick<Config, 'INTEGRATION_KEY' | 'DATABASE_URL' | 'DATA_DIR'>): Buffer[] {
  const kept = DATABASE_URL === '' ? (readIntegrationKey(DATA_DIR) ?? '') : '';
  return keysOf(`${INTEGRATION_KEY},${kept}`);
}
