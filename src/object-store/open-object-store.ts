import type { BucketAccess } from '../integrations/bucket-client.ts';
import { BUCKET_CLIENT, parseS3Address } from '../integrations/source.ts';
import { pathOfUrl } from '../platform/files.ts';
import { importOptional } from '../platform/optional-package.ts';
import { type AddressSettings, type Reach, reachOfSources } from '../platform/reach.ts';
import { type ObjectStore, ObjectStoreError, requireKey, requirePrefix } from './object-store.ts';

export interface OpenOptions {
  /** Addresses of buckets that may be connected to. */
  reach: Reach;
  /** Returns the access to a bucket. Called only if a bucket is opened. */
  accessTo(bucket: string): BucketAccess | Promise<BucketAccess>;
}

/**
 * Opens the store at an address: `s3://bucket/prefix`, `file:///folder`, or the path of a folder, which the
 * first write creates. No request is sent yet.
 * @throws {ObjectStoreError} `config` if the address is invalid or refused
 */
export async function openObjectStore(url: string, { reach, accessTo }: OpenOptions): Promise<ObjectStore> {
  const address = parseS3Address(url);
  if (address) {
    const { bucket, prefix } = address;
    const location = { bucket, prefix: prefix === '' || prefix.endsWith('/') ? prefix : `${prefix}/` };
    requirePrefix(location.prefix);
    const { openBucketStore } = await importOptional(
      BUCKET_CLIENT,
      () => import('./bucket-store.ts'),
      (message, options) => new ObjectStoreError('config', message, options),
    );
    return guarded(openBucketStore(location, await accessTo(bucket), { reach }));
  }
  const { openFolderStore } = await import('./folder-store.ts');
  return guarded(openFolderStore(folderOf(url)));
}

/** @throws {ObjectStoreError} `config` */
function folderOf(url: string): string {
  if (url !== '' && !/^[a-z][a-z0-9+.-]*:/i.test(url)) return url;
  const folder = pathOfUrl(url);
  if (folder !== undefined) return folder;
  throw new ObjectStoreError(
    'config',
    `${JSON.stringify(url)} is not a location for objects; use s3://bucket/prefix, file:///folder or the path of a folder`,
  );
}

/** Validates the keys, so that no key leads out of the store. */
function guarded(store: ObjectStore): ObjectStore {
  return {
    ...store,
    async put(key, from, options) {
      requireKey(key);
      return store.put(key, from, options);
    },
    async get(key, options) {
      requireKey(key);
      return store.get(key, options);
    },
    async stat(key) {
      requireKey(key);
      return store.stat(key);
    },
    async list(prefix, page) {
      requirePrefix(prefix);
      return store.list(prefix, page);
    },
    async remove(key) {
      requireKey(key);
      return store.remove(key);
    },
  };
}

/** Settings for the access to buckets, which are the same in every process. */
export interface BucketSettings {
  S3_REGION: string;
  S3_ENDPOINT: string;
  S3_ACCESS_KEY_ID: string;
  S3_SECRET_ACCESS_KEY: string;
}

/**
 * Returns the access to buckets that the settings define, for `openObjectStore`.
 * @throws {ObjectStoreError} `config`, naming a missing setting
 */
export function accessBySettings(settings: BucketSettings): BucketAccess {
  for (const name of ['S3_REGION', 'S3_ACCESS_KEY_ID', 'S3_SECRET_ACCESS_KEY'] as const) {
    if (settings[name] === '')
      throw new ObjectStoreError('config', `${name} is not set; a location in a bucket needs it`);
  }
  return {
    region: settings.S3_REGION,
    endpoint: settings.S3_ENDPOINT || undefined,
    credentials: {
      access_key_id: settings.S3_ACCESS_KEY_ID,
      secret_access_key: settings.S3_SECRET_ACCESS_KEY,
    },
  };
}

/**
 * Opens the store at an address with the settings for buckets and refused networks.
 * @throws {ObjectStoreError} `config`
 */
export const openBySettings = (
  url: string,
  settings: BucketSettings & AddressSettings,
): Promise<ObjectStore> =>
  openObjectStore(url, {
    reach: reachOfSources(settings),
    accessTo: () => accessBySettings(settings),
  });
