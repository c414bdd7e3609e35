import { importOptional } from '../platform/optional-package.ts';
import {
  BUCKET_CLIENT,
  type Credentials,
  type Source,
  type SourceDefinition,
  SourceError,
  type SourceOptions,
} from './source.ts';

/**
 * Opens a source of any kind. The modules are imported when they are needed, because DuckDB and the S3 client
 * are large and most processes never open a source.
 * @throws {SourceError} `config` if address, credentials, path or bucket are wrong; `failed` if the source
 * does not respond
 */
export async function openSource(
  definition: SourceDefinition,
  credentials: Credentials | undefined,
  options: SourceOptions,
): Promise<Source> {
  switch (definition.type) {
    case 'postgres': {
      if (!credentials || !('user' in credentials)) {
        throw new SourceError('config', 'a Postgres source needs a user and a password');
      }
      const { openPostgres } = await import('./postgres-source.ts');
      return openPostgres(definition, credentials, options);
    }
    case 'folder': {
      const { openFolder } = await import('./files-source.ts');
      return openFolder(definition, options);
    }
    case 's3': {
      if (!credentials || !('access_key_id' in credentials)) {
        throw new SourceError('config', 'a bucket needs an access_key_id and a secret_access_key');
      }
      const { openBucket } = await importOptional(
        BUCKET_CLIENT,
        () => import('./bucket.ts'),
        (message, options) => new SourceError('failed', message, options),
      );
      return openBucket(definition, credentials, options);
    }
  }
}
