import path from 'node:path';
import type { BucketAccess } from '../integrations/bucket-client.ts';
import { ObjectStoreError } from '../object-store/object-store.ts';
import { accessBySettings, type BucketSettings } from '../object-store/open-object-store.ts';
import { pathOfUrl } from '../platform/files.ts';
import type { FileRange, LogPlace } from './destination.ts';

export const streamFormats = ['ndjson', 'parquet'] as const;
export type StreamFormat = (typeof streamFormats)[number];

/** As the settings of a destination hold it. */
export interface FilesSettings {
  /** `s3://bucket/prefix` or `file:///folder`. */
  to: string;
  format: StreamFormat;
  /** Of a bucket that the settings S3_* do not open: these go together, and with a secret. */
  region?: string;
  access_key_id?: string;
  /** Of a service other than AWS. */
  endpoint?: string;
}

/** Where files may go on this machine, and how its buckets are reached. */
export interface FilePlaces {
  /** Paths from the root; what is beneath them is allowed as well. */
  folders: readonly string[];
  /** The access that the settings give. @throws {ObjectStoreError} `config` */
  bucketAccess(): BucketAccess;
}

export interface FilePlacesSettings extends BucketSettings {
  readonly STREAM_FOLDERS: string;
  readonly DATA_DIR: string;
}

export function filePlacesOf(settings: FilePlacesSettings): FilePlaces {
  const { STREAM_FOLDERS, DATA_DIR } = settings;
  const folders =
    STREAM_FOLDERS === ''
      ? [path.resolve(DATA_DIR, 'streams')]
      : STREAM_FOLDERS.split(',').map((folder) => path.resolve(folder.trim()));
  return { folders, bucketAccess: () => accessBySettings(settings) };
}

const BUCKET = /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(\/[A-Za-z0-9_=+@/.-]*)?$/;

/** @returns which rule it breaks, to stand behind its name; undefined if none */
export function refusalOfPlace(to: string): string | undefined {
  if (BUCKET.test(to) || folderOf(to) !== undefined) return undefined;
  return 'must be s3://bucket/prefix or file:///folder';
}

export const isBucketPlace = (to: string): boolean => to.startsWith('s3://');

/** The folder's path; undefined where it is none. */
export function folderOf(to: string): string | undefined {
  const folder = /^file:\/\/\/[^/]/.test(to) ? pathOfUrl(to) : undefined;
  return folder && path.resolve(folder);
}

/** @throws {ObjectStoreError} `config`, naming the setting */
export function requireFolder(folder: string, { folders }: FilePlaces): void {
  const isBeneath = folders.some((root) => {
    const rest = path.relative(root, folder);
    return rest === '' || !(rest === '..' || rest.startsWith(`..${path.sep}`) || path.isAbsolute(rest));
  });
  if (isBeneath) return;
  throw new ObjectStoreError(
    'config',
    `${folder} is not in a folder to which streams can write: ${folders.join(', ')} (set STREAM_FOLDERS)`,
  );
}

/** Whether what is stored is what we store. */
export function isFilesSettings(settings: object): settings is FilesSettings {
  const { to, format, region, access_key_id: id, endpoint } = settings as Partial<FilesSettings>;
  if (typeof to !== 'string' || refusalOfPlace(to) || !streamFormats.includes(format!)) return false;
  if ((region === undefined) !== (id === undefined)) return false;
  return [region, id, endpoint].every((one) => one === undefined || typeof one === 'string');
}

const ENDINGS: Record<StreamFormat, string> = { ndjson: 'ndjson.gz', parquet: 'parquet' };

/**
 * The key of a file. In the order of keys, those of a workspace are in the order of the log: hours do not go back, and places
 * of the log have one length.
 */
export function keyOf({ workspaceId, hour, from, to }: FileRange, format: StreamFormat): string {
  const [date, time] = hour.toISOString().split('T');
  const name = `${shown(from)}-${shown(to)}.${ENDINGS[format]}`;
  return `workspace=${workspaceId}/date=${date}/hour=${time!.slice(0, 2)}/${name}`;
}

/** A dot sorts behind a hyphen: so what begins within a row comes behind what begins with it. */
function shown({ position, place }: LogPlace): string {
  const within = place > 0 ? `.${String(place).padStart(6, '0')}` : '';
  return `${position.padStart(19, '0')}${within}`;
}
