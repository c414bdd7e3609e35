import { connectBucket } from './bucket/client.ts';
import { listObjects, objectFiles } from './bucket/objects.ts';
import type { BucketDefinition, Credentials } from './definition.ts';
import { openFiles } from './files-source.ts';
import type { Source } from './source.ts';

/**
 * Every object of a format under a prefix of an S3-compatible bucket. Objects are fetched to the scratch folder and read
 * there as files are: a file may hold any UPDATED_AT, whenever it was written, so that all of them are.
 * @throws {SourceError} `config` for a wrong key, bucket or endpoint, and when there is no object
 */
export function openBucket(
  definition: BucketDefinition,
  credentials: Extract<Credentials, { access_key_id: string }>,
  options: { serviceIdField: string },
): Promise<Source> {
  return openFiles(definition.format, options, async (scratch) => {
    const bucket = connectBucket(definition, credentials);
    try {
      return objectFiles(bucket, await listObjects(bucket), scratch);
    } catch (error) {
      bucket.client.destroy();
      throw error;
    }
  });
}
