import { type Command, Option } from 'commander';
import type { Credentials } from '../../integrations/definition.ts';
import { ObjectStoreError } from '../../object-store/object-store.ts';
import type { Config } from '../../platform/config.ts';
import type { Json } from '../../profile/json.ts';
import {
  filePlacesOf,
  folderOf,
  isBucketPlace,
  requireFolder,
  type StreamFormat,
  streamFormats,
} from '../../streams/file-places.ts';
import { Refusal } from '../command.ts';
import {
  namesSecret,
  readSecret,
  requireEndpoint,
  type SecretOptions,
} from '../integrations/source-options.ts';

/** Where files of a stream go to, as the command line says it. */
export interface FileTargetOptions extends SecretOptions {
  to?: string;
  format?: StreamFormat;
  region?: string;
  endpoint?: string;
  accessKeyId?: string;
}

export interface FileTarget {
  kind: 'files';
  settings: Record<string, Json>;
  credentials?: Credentials;
  gatherMs: number;
}

/** What goes with `--to` alone. */
export const fileOptions = {
  format: '--format',
  region: '--region',
  endpoint: '--endpoint',
  accessKeyId: '--access-key-id',
} as const;

/**
 * How long what takes effect is gathered for a file, in milliseconds: until then nothing is leased for it. Below what
 * PenstockStreamLags fires at.
 */
const GATHER_MS = 240_000;

export function addFileOptions(command: Command, parsePlace: (text: string) => string): Command {
  return command
    .option('--to <place>', 'files: s3://bucket/prefix or file:///folder', parsePlace)
    .addOption(new Option('--format <format>', 'files: gzipped NDJSON unless told').choices(streamFormats))
    .option('--region <region>', 's3: region of the bucket')
    .option('--endpoint <url>', 's3: address of a service other than AWS')
    .option(
      '--access-key-id <id>',
      's3: who writes it; unless told, the settings S3_* say how it is reached',
    );
}

/**
 * @param requireAllowed refuses a host that may not be reached
 * @throws {Refusal} for what contradicts itself, is missing, or may not be reached
 */
export async function readFiles(
  options: FileTargetOptions & { to: string },
  config: Config,
  requireAllowed: (host: string) => void,
): Promise<FileTarget> {
  const { to, format = 'ndjson', region, endpoint, accessKeyId } = options;
  const places = filePlacesOf(config);
  const made = (settings: Record<string, Json>): FileTarget => ({
    ...{ kind: 'files', settings: { to, format, ...settings }, gatherMs: GATHER_MS },
  });
  const hasOwn = region !== undefined || endpoint !== undefined || accessKeyId !== undefined;
  if (!hasOwn && namesSecret(options)) throw new Refusal('a secret of files goes with --access-key-id');
  if (!isBucketPlace(to)) {
    if (hasOwn) throw new Refusal('--region, --endpoint and --access-key-id go with s3://');
    saying(() => requireFolder(folderOf(to)!, places));
    return made({});
  }
  if (!hasOwn) {
    const access = saying(() => places.bucketAccess());
    if (access.endpoint !== undefined) requireAllowed(new URL(access.endpoint).hostname);
    return made({});
  }
  if (!region || !accessKeyId)
    throw new Refusal('s3:// needs --region and --access-key-id, or the settings S3_*');
  if (endpoint !== undefined) {
    requireEndpoint(endpoint);
    requireAllowed(new URL(endpoint).hostname);
  }
  const secret_access_key = await readSecret(options, `Secret access key of ${accessKeyId}`);
  return {
    ...made({ region, access_key_id: accessKeyId, ...(endpoint !== undefined && { endpoint }) }),
    credentials: { access_key_id: accessKeyId, secret_access_key },
  };
}

function saying<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw error instanceof ObjectStoreError ? new Refusal(`--to: ${error.message}`) : error;
  }
}
