import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { Readable } from 'node:stream';
import { S3Client, S3ServiceException } from '@aws-sdk/client-s3';
import { readUpTo } from '../platform/bounded-body.ts';
import { type Reach, RefusedAddress } from '../platform/reach.ts';
import { type BucketDefinition, type Credentials, SourceError } from './source.ts';

/** Time limits for a storage service, in milliseconds. */
export interface TimeLimits {
  connect: number;
  /** Time until a response begins, and between two parts of it. */
  silence: number;
  /** Total time for all pages of a list. */
  list: number;
  /** Period in which an object must transfer at least `MIN_BYTES_PER_WINDOW`. */
  window: number;
}

/**
 * Maximum bytes of an XML response, which is parsed in one step. The worst input of this size takes the
 * parser a third of a second (2 cores, 2026-11-22). A page of a list has at most `PAGE_KEYS` entries and
 * stays far below.
 */
const MAX_XML_BYTES = 524_288;
export const PAGE_KEYS = 200;

/** A bucket and a prefix, without the format of the objects. */
export type BucketLocation = Omit<BucketDefinition, 'format'>;

/** Access to a bucket. */
export interface BucketAccess {
  region: string;
  /** Endpoint of a service other than AWS. */
  endpoint: string | undefined;
  credentials: Extract<Credentials, { access_key_id: string }>;
}

export interface Bucket {
  client: S3Client;
  definition: BucketLocation;
  /** Name of the bucket in messages. */
  where: string;
  patience: TimeLimits;
}

/** The parts of a middleware that handle the body of a response; the client has no types for them. */
type Next = (
  request: never,
) => Promise<{ response: { statusCode: number; body?: unknown }; output: unknown }>;
type Middleware = Parameters<S3Client['middlewareStack']['addRelativeTo']>[0];

interface BucketOptions {
  reach: Reach;
  patience: TimeLimits;
}

/** @throws {SourceError} `config` if the endpoint is a refused address */
export function connectBucket(
  definition: BucketLocation,
  credentials: Extract<Credentials, { access_key_id: string }>,
  { reach, patience }: BucketOptions,
): Bucket {
  const { region, endpoint, bucket } = definition;
  if (endpoint && URL.canParse(endpoint)) requireAllowed(reach, new URL(endpoint).hostname);
  const agentOptions = { keepAlive: true, lookup: reach.lookup };
  const client = new S3Client({
    region,
    credentials: {
      accessKeyId: credentials.access_key_id,
      secretAccessKey: credentials.secret_access_key,
    },
    maxAttempts: 4,
    requestHandler: {
      connectionTimeout: patience.connect,
      socketTimeout: patience.silence,
      requestTimeout: patience.silence,
      throwOnRequestTimeout: true,
      httpAgent: new HttpAgent(agentOptions),
      httpsAgent: new HttpsAgent(agentOptions),
    },
    ...(endpoint && {
      endpoint,
      // Other services rarely have a host name for each bucket, and some do not support the newer checksums.
      forcePathStyle: true,
      requestChecksumCalculation: 'WHEN_REQUIRED' as const,
      responseChecksumValidation: 'WHEN_REQUIRED' as const,
    }),
  });
  const where = `bucket ${bucket}${endpoint ? ` at ${endpoint}` : ''}`;
  // Read XML with a limit before the client parses it: the client would read a response of any length into
  // memory.
  client.middlewareStack.addRelativeTo(
    ((next: Next, context: { commandName?: string }) => async (request: never) => {
      const result = await next(request);
      const { response } = result;
      const isObject = context.commandName === 'GetObjectCommand' && response.statusCode < 300;
      if (response.body instanceof Readable && !isObject)
        response.body = await boundedXml(response.body, where);
      return result;
    }) as unknown as Middleware,
    { name: 'boundedXml', relation: 'after', toMiddleware: 'deserializerMiddleware' },
  );
  return { client, definition, where, patience };
}

function requireAllowed(reach: Reach, host: string): void {
  try {
    reach.requireAllowed(host);
  } catch (error) {
    throw new SourceError('config', (error as Error).message, { cause: error });
  }
}

/**
 * @throws {SourceError} `failed` if the response is too long, or has a DOCTYPE, for which the parser takes
 * time quadratic in its length
 */
async function boundedXml(body: Readable, where: string): Promise<Readable> {
  const { bytes: whole, isWhole } = await readUpTo(MAX_XML_BYTES, body);
  if (!isWhole)
    throw new SourceError(
      'failed',
      `${where}: the bucket sent a response of more than ${MAX_XML_BYTES} bytes, which S3 never does; check the endpoint`,
    );
  if (/<!doctype/i.test(whole.toString('latin1')))
    throw new SourceError(
      'failed',
      `${where}: the bucket sent a response with a DOCTYPE, which S3 never does; check the endpoint`,
    );
  return Readable.from(whole.length > 0 ? [whole] : []);
}

/** Error codes of wrong settings: address, certificate, region, name, key or permission. */
const CONFIG_CODES =
  /^(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|ERR_TLS_.*|.*CERT.*|EPROTO|ERR_INVALID_URL)$/;
const CONFIG_STATUSES = new Set([301, 307, 400, 401, 403, 404]);
/** Temporary errors that also have status 400. */
const TEMPORARY_ERRORS = new Set(['RequestTimeout', 'RequestTimeTooSkewed', 'ExpiredToken']);

/** @returns an error for the owner with the service's error name and message, which contain no secret */
export function toSourceError(error: unknown, where: string): SourceError {
  if (error instanceof SourceError) return error;
  // The client may have wrapped an error of the connection.
  const { cause } = error as Error;
  if (cause instanceof SourceError) return cause;
  const refused = [error, cause].find((one) => one instanceof RefusedAddress);
  if (refused) return new SourceError('config', refused.message, { cause: refused });
  const { name, message, code } = error as Error & { code?: string };
  const reason = isConfig(error, code) ? 'config' : 'failed';
  const details = [...new Set([name, code, message])].filter((text) => text && text !== 'Error').join(': ');
  return new SourceError(reason, `${where}: ${details}`, { cause: error });
}

function isConfig(error: unknown, code: string | undefined): boolean {
  if (!(error instanceof S3ServiceException)) return CONFIG_CODES.test(code ?? '');
  return CONFIG_STATUSES.has(error.$metadata.httpStatusCode ?? 0) && !TEMPORARY_ERRORS.has(error.name);
}
