import type { Config } from '../../src/config.ts';
import { decryptCredentials, keysOf } from '../../src/integrations/credentials.ts';
import { openSource } from '../../src/integrations/open-source.ts';
import type { Source } from '../../src/integrations/source.ts';
import type { Run } from '../../src/store/syncs/find-run.ts';

/** Opens the source of a run's integration with its credentials, which are decrypted here and kept by nobody. */
export function createSourceOpener(config: Pick<Config, 'INTEGRATION_KEY' | 'SERVICE_ID_FIELD'>) {
  const keys = keysOf(config.INTEGRATION_KEY);

  /** @throws {SourceError} */
  return async function openRunSource({ integrationId, source, credentials }: Run): Promise<Source> {
    const secret = credentials ? decryptCredentials(credentials, integrationId, keys) : undefined;
    return openSource(source, secret, { serviceIdField: config.SERVICE_ID_FIELD });
  };
}
