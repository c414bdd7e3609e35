import { randomBytes } from 'node:crypto';
import path from 'node:path';
import type { ObjectStore } from '../object-store/object-store.ts';
import { accessBySettings, type BucketSettings, openObjectStore } from '../object-store/open-object-store.ts';
import { type AddressSettings, reachOfSources } from '../platform/reach.ts';
import type { ExpiredExport, NewSegmentExport } from '../store/segment-exports.ts';

export interface ExportFilesSettings extends BucketSettings, AddressSettings {
  SEGMENT_EXPORT_URL: string;
  DATA_DIR: string;
}

/** Whether exports go to a bucket: then its owner has them, and there are no links. */
export function isBucket({ SEGMENT_EXPORT_URL }: Pick<ExportFilesSettings, 'SEGMENT_EXPORT_URL'>): boolean {
  return SEGMENT_EXPORT_URL.startsWith('s3://');
}

/**
 * Where exports of segments lie: the place of SEGMENT_EXPORT_URL, unless told a folder of DATA_DIR.
 * @throws {ObjectStoreError} `config`
 */
export function openExportFiles(settings: ExportFilesSettings): Promise<ObjectStore> {
  const place = settings.SEGMENT_EXPORT_URL || path.join(settings.DATA_DIR, 'segment-exports');
  return openObjectStore(place, {
    reach: reachOfSources(settings),
    accessTo: () => accessBySettings(settings),
  });
}

/** Key of the one file that a link leads to. */
export const fileOfLink = ({ objectPrefix }: Pick<ExpiredExport, 'objectPrefix'>) => `${objectPrefix}.zip`;

/** What the keys of an export begin with in a bucket; the day is that of the request, in UTC. */
export function prefixInBucket({
  segmentId,
  objectPrefix,
  requestedAt,
}: Pick<NewSegmentExport, 'segmentId' | 'objectPrefix'> & { requestedAt: Date }): string {
  return `segment-export/${segmentId}/${requestedAt.toISOString().slice(0, 10)}/${objectPrefix}/`;
}

/** A name that no other file has. */
export function newFileName(format: NewSegmentExport['outputFormat']): string {
  return `${randomBytes(16).toString('hex')}.${format === 'gzip' ? 'gz' : 'zip'}`;
}

/** Removes what lies under keys of one beginning. */
export async function removeAll(store: ObjectStore, prefix: string): Promise<void> {
  for (let after: string | null = ''; after !== null; ) {
    const { objects, next } = await store.list(prefix, after === '' ? {} : { after });
    for (const { key } of objects) await store.remove(key);
    after = next;
  }
}
