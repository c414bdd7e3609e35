import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { Readable } from 'node:stream';
import { S3Client, S3ServiceException } from '@aws-sdk/client-s3';
import { readUpTo } from '../platform/bounded-body.ts';
import { type Reach, RefusedAddress } from '../platform/reach.ts';
import { type BucketDefinition, type Credentials, SourceError } from './source.ts';

/** How long a service may take, in milliseconds. */
export interface Patience {
  connect: number;
  /** Until an answer begins, and between two parts of it. */
  silence: number;
  /** All pages of a list together. */
  list: number;
  /** Time in which an object has to bring `MOST_SLOW_BYTES`. */
  window: number;
}

/**
 * Bytes of an answer in XML, which is parsed in one step: what is worst for the parser takes it a third of a second
 * (2 cores, 2026-11-22). A page of a list has at most `PAGE_KEYS`, so that none comes near.
 */
const MOST_XML_BYTES = 524_288;
export const PAGE_KEYS = 200;

/** Where objects are, whatever is in them. */
export type BucketPlace = Omit<BucketDefinition, 'format'>;

/** How a bucket is opened. */
export interface BucketAccess {
  region: string;
  /** Of a service other than AWS. */
  endpoint: string | undefined;
  credentials: Extract<Credentials, { access_key_id: string }>;
}

export interface Bucket {
  client: S3Client;
  definition: BucketPlace;
  /** For messages. */
  where: string;
  patience: Patience;
}

/** As far as an answer's body is concerned; the client has no types for them. */
type Next = (
  request: never,
) => Promise<{ response: { statusCode: number; body?: unknown }; output: unknown }>;
type Middleware = Parameters<S3Client['middlewareStack']['addRelativeTo']>[0];

export interface BucketOptions {
  reach: Reach;
  patience: Patience;
}

/** @throws {SourceError} `config` when the endpoint is an address that is refused */
export function connectBucket(
  definition: BucketPlace,
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
      // Other services seldom have a host name for each bucket, and not all know the newer checksums.
      forcePathStyle: true,
      requestChecksumCalculation: 'WHEN_REQUIRED' as const,
      responseChecksumValidation: 'WHEN_REQUIRED' as const,
    }),
  });
  const where = `bucket ${bucket}${endpoint ? ` at ${endpoint}` : ''}`;
  // What is parsed is read here first: the client itself would take an answer of any length into memory.
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

/** @throws {SourceError} `failed` when it is too long, or has a DOCTYPE, which takes the parser the square of its length */
async function boundedXml(body: Readable, where: string): Promise<Readable> {
  const { bytes: whole, isWhole } = await readUpTo(MOST_XML_BYTES, body);
  if (!isWhole) throw new SourceError('failed', `${where}: an answer has more than ${MOST_XML_BYTES} bytes`);
  if (/<!doctype/i.test(whole.toString('latin1')))
    throw new SourceError('failed', `${where}: an answer has a DOCTYPE, which answers of S3 never have`);
  return Readable.from(whole.length > 0 ? [whole] : []);
}

/** Address, certificate, region, name, key, permission. */
const CONFIG_CODES =
  /^(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|ERR_TLS_.*|.*CERT.*|EPROTO|ERR_INVALID_URL)$/;
const CONFIG_STATUSES = new Set([301, 307, 400, 401, 403, 404]);
/** With status 400 as well, but of the moment. */
const PASSING = new Set(['RequestTimeout', 'RequestTimeTooSkewed', 'ExpiredToken']);

/** @returns what the owner reads: the service's name of the error and its words, which hold no secret */
export function toSourceError(error: unknown, where: string): SourceError {
  if (error instanceof SourceError) return error;
  // Of the connection, within what the client has made of it.
  const { cause } = error as Error;
  if (cause instanceof SourceError) return cause;
  const refused = [error, cause].find((one) => one instanceof RefusedAddress);
  if (refused) return new SourceError('config', refused.message, { cause: refused });
  const { name, message, code } = error as Error & { code?: string };
  const reason = isConfig(error, code) ? 'config' : 'failed';
  const said = [...new Set([name, code, message])].filter((text) => text && text !== 'Error').join(': ');
  return new SourceError(reason, `${where}: ${said}`, { cause: error });
}

function isConfig(error: unknown, code: string | undefined): boolean {
  if (!(error instanceof S3ServiceException)) return CONFIG_CODES.test(code ?? '');
  return CONFIG_STATUSES.has(error.$metadata.httpStatusCode ?? 0) && !PASSING.has(error.name);
}
