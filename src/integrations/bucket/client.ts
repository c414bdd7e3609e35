import { S3Client, S3ServiceException } from '@aws-sdk/client-s3';
import type { BucketDefinition, Credentials } from '../definition.ts';
import { SourceError } from '../source.ts';

const CONNECT_MS = 10_000;
/** Silence on a connection that ends it. */
const SILENCE_MS = 60_000;

export interface Bucket {
  client: S3Client;
  definition: BucketDefinition;
  /** For messages. */
  where: string;
}

export function connectBucket(
  definition: BucketDefinition,
  credentials: Extract<Credentials, { access_key_id: string }>,
): Bucket {
  const { region, endpoint, bucket } = definition;
  const client = new S3Client({
    region,
    credentials: {
      accessKeyId: credentials.access_key_id,
      secretAccessKey: credentials.secret_access_key,
    },
    maxAttempts: 4,
    requestHandler: { connectionTimeout: CONNECT_MS, socketTimeout: SILENCE_MS },
    ...(endpoint && {
      endpoint,
      // Other services seldom have a host name for each bucket, and not all know the newer checksums.
      forcePathStyle: true,
      requestChecksumCalculation: 'WHEN_REQUIRED' as const,
      responseChecksumValidation: 'WHEN_REQUIRED' as const,
    }),
  });
  return { client, definition, where: `bucket ${bucket}${endpoint ? ` at ${endpoint}` : ''}` };
}

/** Address, certificate, region, name, key, permission. */
const CONFIG_CODES =
  /^(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|ERR_TLS_.*|.*CERT.*|EPROTO|ERR_INVALID_URL)$/;
const CONFIG_STATUSES = new Set([301, 307, 400, 401, 403, 404]);
/** With status 400 as well, but of the moment. */
const PASSING = new Set(['RequestTimeout', 'RequestTimeTooSkewed', 'ExpiredToken']);

/** @returns what the owner reads: the service's name of the error and its words, which hold no secret */
export function toSourceError(error: unknown, { where }: Bucket): SourceError {
  if (error instanceof SourceError) return error;
  const { name, message, code } = error as Error & { code?: string };
  const reason = isConfig(error, code) ? 'config' : 'failed';
  const said = [...new Set([name, code, message])].filter((text) => text && text !== 'Error').join(': ');
  return new SourceError(reason, `${where}: ${said}`, { cause: error });
}

function isConfig(error: unknown, code: string | undefined): boolean {
  if (!(error instanceof S3ServiceException)) return CONFIG_CODES.test(code ?? '');
  return CONFIG_STATUSES.has(error.$metadata.httpStatusCode ?? 0) && !PASSING.has(error.name);
}
