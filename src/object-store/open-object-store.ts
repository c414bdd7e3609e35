import type { BucketAccess } from '../integrations/bucket-client.ts';
import { BUCKET_CLIENT, s3PlaceOf } from '../integrations/source.ts';
import { pathOfUrl } from '../platform/files.ts';
import { importOptional } from '../platform/optional-package.ts';
import { type AddressSettings, type Reach, reachOfSources } from '../platform/reach.ts';
import { type ObjectStore, ObjectStoreError, requireKey, requirePrefix } from './object-store.ts';

export interface OpenOptions {
  /** Of buckets: which addresses may be connected to. */
  reach: Reach;
  /** How a bucket is reached; asked for when there is one to be opened. */
  accessTo(bucket: string): BucketAccess | Promise<BucketAccess>;
}

/**
 * The store at an address: `s3://bucket/prefix`, `file:///folder`, or the path of a folder, which is made when something
 * is put there. Nothing is asked of it yet.
 * @throws {ObjectStoreError} `config` when it is no such address, or one that may not be reached
 */
export async function openObjectStore(url: string, { reach, accessTo }: OpenOptions): Promise<ObjectStore> {
  const address = s3PlaceOf(url);
  if (address) {
    const { bucket, prefix } = address;
    const place = { bucket, prefix: prefix === '' || prefix.endsWith('/') ? prefix : `${prefix}/` };
    requirePrefix(place.prefix);
    const { openBucketStore } = await importOptional(
      BUCKET_CLIENT,
      () => import('./bucket-store.ts'),
      (message, options) => new ObjectStoreError('config', message, options),
    );
    return guarded(openBucketStore(place, await accessTo(bucket), { reach }));
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
    `${JSON.stringify(url)} is no place for objects: s3://bucket/prefix, file:///folder or the path of a folder is`,
  );
}

/** No store sees a key that leads out of it. */
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

/** The settings that say how buckets are reached, of every process alike. */
export interface BucketSettings {
  S3_REGION: string;
  S3_ENDPOINT: string;
  S3_ACCESS_KEY_ID: string;
  S3_SECRET_ACCESS_KEY: string;
}

/**
 * The access that the settings give, for `openObjectStore`.
 * @throws {ObjectStoreError} `config` that names the setting that is missing
 */
export function accessBySettings(settings: BucketSettings): BucketAccess {
  for (const name of ['S3_REGION', 'S3_ACCESS_KEY_ID', 'S3_SECRET_ACCESS_KEY'] as const) {
    if (settings[name] === '')
      throw new ObjectStoreError('config', `a bucket is named, and ${name} is not set`);
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
 * As `openObjectStore`, with what the settings say of buckets and of addresses that may be reached.
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
