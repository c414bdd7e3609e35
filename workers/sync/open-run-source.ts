import { decryptCredentials } from '../../src/integrations/credentials.ts';
import { openSource } from '../../src/integrations/open-source.ts';
import type { Source } from '../../src/integrations/source.ts';
import type { Run } from '../../src/store/syncs/find-run.ts';

/**
 * Opens the source of a run's integration with its credentials, which are decrypted here and kept by nobody.
 * @param serviceIdField wire name of the service id, and so of its column
 */
export function createSourceOpener(keys: readonly Buffer[], serviceIdField: string) {
  /** @throws {SourceError} */
  return async function openRunSource({ integrationId, source, credentials }: Run): Promise<Source> {
    const secret = credentials ? decryptCredentials(credentials, integrationId, keys) : undefined;
    return openSource(source, secret, { serviceIdField });
  };
}
