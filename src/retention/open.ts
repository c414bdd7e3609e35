import type { ObjectStore } from '../object-store/object-store.ts';
import { accessBySettings, type BucketSettings, openObjectStore } from '../object-store/open-object-store.ts';
import { type AddressSettings, reachOfSources } from '../platform/reach.ts';

export interface ArchiveSettings extends BucketSettings, AddressSettings {
  ARCHIVE_URL: string;
}

/**
 * The archive of ARCHIVE_URL; undefined where it is not set.
 * @throws {ObjectStoreError} `config`
 */
export async function openArchive(settings: ArchiveSettings): Promise<ObjectStore | undefined> {
  if (settings.ARCHIVE_URL === '') return undefined;
  return openObjectStore(settings.ARCHIVE_URL, {
    reach: reachOfSources(settings),
    accessTo: () => accessBySettings(settings),
  });
}
