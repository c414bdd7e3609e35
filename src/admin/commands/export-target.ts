import type { Format } from '../../export/progress.ts';
import type { BucketAccess } from '../../integrations/bucket-client.ts';
import { type ObjectStore, ObjectStoreError, requireKey } from '../../object-store/object-store.ts';
import { accessBySettings, openObjectStore } from '../../object-store/open-object-store.ts';
import { reachOfSources } from '../../platform/reach.ts';
import { Refusal } from '../command.ts';
import { readSecret, requireEndpoint, type SecretOptions } from '../integrations/source-options.ts';
import type { Installation } from '../lookup.ts';

export const formats = ['ndjson', 'parquet'] as const;

export interface TargetOptions extends SecretOptions {
  to: string;
  format?: (typeof formats)[number];
  /** False: `--no-gzip`. */
  gzip: boolean;
  region?: string;
  endpoint?: string;
  accessKeyId?: string;
}

/** Where files go, and in which form. */
export interface Target {
  store: ObjectStore;
  /** The one file that is wanted; absent: as many as it takes. */
  file: string | undefined;
  format: Format;
}

const ENDING = /\.(ndjson|ndjson\.gz|parquet)$/;

/**
 * A place whose name ends as that of a file is one; any other is a folder, or what keys begin with in a bucket.
 * @throws {Refusal}
 */
export async function openTarget(options: TargetOptions, installation: Installation): Promise<Target> {
  const ending = ENDING.exec(options.to)?.[1] as Format | undefined;
  if (!ending)
    return { store: await openStore(options, installation), file: undefined, format: formatOf(options) };
  const at = options.to.lastIndexOf('/') + 1;
  const [folder, file] = [options.to.slice(0, at) || '.', options.to.slice(at)];
  if (options.format !== undefined && !ending.startsWith(options.format))
    throw new Refusal(`--to: ${file} ends in .${ending}, and --format says ${options.format}`);
  if (!options.gzip && ending === 'ndjson.gz')
    throw new Refusal(`--to: ${file} ends in .gz, which --no-gzip rules out`);
  try {
    requireKey(file);
  } catch (error) {
    throw inWords(error);
  }
  return { store: await openStore({ ...options, to: folder }, installation), file, format: ending };
}

const formatOf = ({ format, gzip }: TargetOptions): Format =>
  format === 'parquet' ? 'parquet' : gzip ? 'ndjson.gz' : 'ndjson';

async function openStore(options: TargetOptions, { config }: Installation): Promise<ObjectStore> {
  const { region, endpoint, accessKeyId } = options;
  async function accessTo(): Promise<BucketAccess> {
    if (region === undefined && endpoint === undefined && accessKeyId === undefined)
      return accessBySettings(config);
    if (!region || !accessKeyId) throw new Refusal('s3:// needs --region and --access-key-id');
    if (endpoint !== undefined) requireEndpoint(endpoint);
    const secret_access_key = await readSecret(options, `Secret access key of ${accessKeyId}`);
    return { region, endpoint, credentials: { access_key_id: accessKeyId, secret_access_key } };
  }
  try {
    return await openObjectStore(options.to, { reach: reachOfSources(config), accessTo });
  } catch (error) {
    throw inWords(error);
  }
}

const inWords = (error: unknown) =>
  error instanceof ObjectStoreError ? new Refusal(`--to: ${error.message}`) : error;
