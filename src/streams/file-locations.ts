import path from 'node:path';
import type { BucketAccess } from '../integrations/bucket-client.ts';
import { ObjectStoreError } from '../object-store/object-store.ts';
import { accessBySettings, type BucketSettings } from '../object-store/open-object-store.ts';
import { pathOfUrl } from '../platform/files.ts';
import type { FileRange, LogPosition } from './destination.ts';

export const streamFormats = ['ndjson', 'parquet'] as const;
export type StreamFormat = (typeof streamFormats)[number];

/** Settings of a file destination, as they are stored. */
export interface FilesSettings {
  /** `s3://bucket/prefix` or `file:///folder`. */
  to: string;
  format: StreamFormat;
  /**
   * Region and access key of a bucket that does not use the settings S3_*. Both are set together, and with a
   * secret.
   */
  region?: string;
  access_key_id?: string;
  /** Endpoint of a storage service other than AWS. */
  endpoint?: string;
}

/** Locations on this machine that streams may write to, and the access to its buckets. */
export interface FileLocations {
  /** Absolute paths. Their subfolders are allowed as well. */
  folders: readonly string[];
  /** Returns the access that the settings S3_* define. @throws {ObjectStoreError} `config` */
  bucketAccess(): BucketAccess;
}

export interface FileLocationsSettings extends BucketSettings {
  readonly STREAM_FOLDERS: string;
  readonly DATA_DIR: string;
}

export function fileLocationsOf(settings: FileLocationsSettings): FileLocations {
  const { STREAM_FOLDERS, DATA_DIR } = settings;
  const folders =
    STREAM_FOLDERS === ''
      ? [path.resolve(DATA_DIR, 'streams')]
      : STREAM_FOLDERS.split(',').map((folder) => path.resolve(folder.trim()));
  return { folders, bucketAccess: () => accessBySettings(settings) };
}

const BUCKET = /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(\/[A-Za-z0-9_=+@/.-]*)?$/;

/** @returns the rule that the location breaks, as a predicate for its name; undefined if it is valid */
export function refusalOfLocation(to: string): string | undefined {
  if (BUCKET.test(to) || folderOf(to) !== undefined) return undefined;
  return 'must be s3://bucket/prefix or file:///folder';
}

export const isBucketLocation = (to: string): boolean => to.startsWith('s3://');

/** Returns the path of a `file:` location; undefined for other locations. */
export function folderOf(to: string): string | undefined {
  const folder = /^file:\/\/\/[^/]/.test(to) ? pathOfUrl(to) : undefined;
  return folder && path.resolve(folder);
}

/** @throws {ObjectStoreError} `config`, naming the setting */
export function requireFolder(folder: string, { folders }: FileLocations): void {
  const isAllowed = folders.some((root) => {
    const rest = path.relative(root, folder);
    return rest === '' || !(rest === '..' || rest.startsWith(`..${path.sep}`) || path.isAbsolute(rest));
  });
  if (isAllowed) return;
  throw new ObjectStoreError(
    'config',
    `${folder} is not in a folder to which streams can write: ${folders.join(', ')} (set STREAM_FOLDERS)`,
  );
}

/** Returns whether stored settings have the expected form. */
export function isFilesSettings(settings: object): settings is FilesSettings {
  const { to, format, region, access_key_id: id, endpoint } = settings as Partial<FilesSettings>;
  if (typeof to !== 'string' || refusalOfLocation(to) || !streamFormats.includes(format!)) return false;
  if ((region === undefined) !== (id === undefined)) return false;
  return [region, id, endpoint].every((one) => one === undefined || typeof one === 'string');
}

const ENDINGS: Record<StreamFormat, string> = { ndjson: 'ndjson.gz', parquet: 'parquet' };

/**
 * Returns the key of a file. The keys of a workspace sort in the order of the log, because hours never
 * decrease and places in the log have a fixed length.
 */
export function keyOf({ workspaceId, hour, from, to }: FileRange, format: StreamFormat): string {
  const [date, time] = hour.toISOString().split('T');
  const name = `${positionName(from)}-${positionName(to)}.${ENDINGS[format]}`;
  return `workspace=${workspaceId}/date=${date}/hour=${time!.slice(0, 2)}/${name}`;
}

/**
 * A dot sorts after a hyphen, so a file that begins in the middle of a row sorts after one that begins with
 * the row.
 */
function positionName({ position, place: index }: LogPosition): string {
  const entry = index > 0 ? `.${String(index).padStart(6, '0')}` : '';
  return `${position.padStart(19, '0')}${entry}`;
}
