import type { ServerResponse } from 'node:http';
import { ApiError, type ErrorName, entriesOf, errors, explain, type Rejection } from '../errors.ts';
import type { Operation, Reply } from '../operations/operation.ts';
import { type LineFields, type Log, type StrangersLog, writeLine } from '../platform/log.ts';
import { noteRequest } from '../platform/tracing.ts';
import type { Json } from '../profile/json.ts';
import type { EdgeMetrics } from './metrics.ts';
import type { Allowance } from './rate-limit.ts';
import type { RequestInHand } from './request.ts';
import type { Pieces, Responses } from './responses.ts';
import { isUnavailable, whyUnavailable } from './unavailable.ts';

/** The result of a request: its reply, and data for the headers, the log line and the metrics. */
export interface Answer {
  reply: Reply;
  /** Number of objects that were added to the lanes. */
  accepted: number;
  /** The refused objects that are listed in the reply. */
  rejected: readonly Rejection[];
  /** Id of the first request with the same `Idempotency-Key`, whose reply this is. */
  repeats?: string;
  /** Why the request was refused, or why its outcome is unknown. */
  error?: string;
  /** JSON text of the body, if it has been serialized already. */
  text?: string | Pieces;
}

/** The caller's identity and limit, as far as they were determined. */
export interface Known {
  /** Id of the API key, or of the SCIM token. */
  keyId?: string | undefined;
  workspaceId?: string | undefined;
  companyId?: string | undefined;
  allowance?: Allowance | undefined;
}

/** Shared by every answer without refused objects, so that such an answer allocates no list. */
export const NONE_REJECTED: readonly Rejection[] = [];

/** An answer to a request that stored no objects. */
export function answerOf(reply: Reply): Answer {
  return { reply, accepted: 0, rejected: NONE_REJECTED };
}

/** A reply, with its JSON text if it has been serialized already. */
type SentReply = Reply & Pick<Answer, 'text'>;

interface SentAs {
  requestId: string;
  allowance?: Allowance | undefined;
  /** The workspace or company that unsent bytes are counted for; absent for a caller without a key. */
  owner?: string | undefined;
  /** Counts bytes that the client does not read at once; absent for errors outside of operations, which are short. */
  responses?: Responses;
}

/**
 * Sends a JSON answer with the headers that every answer has. Before the limit is known, its three headers are
 * present and empty, as clients of the protocol expect.
 */
export function sendJson(
  response: ServerResponse,
  { status, body, headers, text = body === undefined ? '' : JSON.stringify(body) }: SentReply,
  { requestId, allowance, owner, responses }: SentAs,
): void {
  // A flat list of names and values: Node uses it unchanged, and building an object with spreads would cost more than
  // the rest of this function.
  const list = [
    'Content-Length',
    String(typeof text === 'string' ? Buffer.byteLength(text) : text.bytes),
    'X-Request-Id',
    requestId,
    'X-RateLimit-Limit',
    String(allowance?.limit ?? ''),
    'X-RateLimit-Remaining',
    String(allowance?.remaining ?? ''),
    'X-RateLimit-Reset',
    String(allowance?.reset ?? ''),
    'X-Content-Type-Options',
    'nosniff',
  ];
  if (text && headers?.['Content-Type'] === undefined) list.push('Content-Type', JSON_UTF8);
  for (const name in headers) list.push(name, headers[name]!);
  response.writeHead(status, list);
  if (typeof text !== 'string') responses!.sendPieces(response, text);
  else if (responses) responses.end(response, text, owner);
  else response.end(text);
}

const JSON_UTF8 = 'application/json; charset=utf-8';

/** Seconds after which a client that got a 503 may try again. */
const RETRY_AFTER = '1';

/**
 * Builds the reply for a failed request, in the operation's own format. Unexpected errors are logged, and their
 * details are not sent to the client.
 */
export function toReply(
  error: unknown,
  {
    operation,
    requestId,
    log,
    body: sent,
  }: { operation: Operation; requestId: string; log: Log; body?: Record<string, Json> | undefined },
): Reply {
  let entry: ErrorName = 'internal';
  let fact: string | undefined;
  let message: string | undefined;
  let details: Json | undefined;
  let headers: Record<string, string> = {};
  if (error instanceof ApiError) {
    ({ entry, fact, message, headers } = error);
    details = error.rejected.length > 0 ? entriesOf(error.rejected) : (error as { errors?: Json }).errors;
  } else if (isUnavailable(error)) {
    entry = whyUnavailable(error);
    headers = { 'Retry-After': RETRY_AFTER };
  } else {
    log.error({ err: error, request_id: requestId, operation: operation.id }, 'unexpected error');
  }
  return {
    status: errors[entry].status,
    body: errorBody(operation, { entry, fact, message, details, sent }),
    headers,
  };
}

/** Builds the body of an error in the operation's own format. SCIM errors have no code. */
export function errorBody(
  operation: Operation,
  { entry, fact, message = errors[entry].message, details, sent }: ShownError,
): Json {
  const { status } = errors[entry];
  if (operation.auth === 'scim')
    return operation.errorBody!({ message, errors: details, status, body: sent });
  const body = operation.errorBody?.({ message, errors: details, status, body: sent }) ?? { message };
  return { ...(body as Record<string, Json>), ...explain(entry, fact) };
}

interface ShownError {
  entry: ErrorName;
  fact?: string | undefined;
  /** Absent: the message of the entry. */
  message?: string | undefined;
  details?: Json | undefined;
  /** The body of the request. */
  sent?: Record<string, Json> | undefined;
}

/** Ids that are safe to log: they cannot contain a line break or an email address. */
const HARMLESS = /^[A-Za-z0-9._-]{1,100}$/;

/** The fields of every request's log line. The client's own request id is omitted unless it is safe to log. */
export function requestLine(
  { request, requestId, milliseconds }: Pick<Answered, 'request' | 'requestId' | 'milliseconds'>,
  status: number,
): LineFields {
  const theirs = request.headers['x-request-id'];
  const line: LineFields = { request_id: requestId, status, ms: Math.round(milliseconds * 10) / 10 };
  if (typeof theirs === 'string' && HARMLESS.test(theirs)) line.client_request_id = theirs;
  return line;
}

/** The level of a request's log line. */
export function levelOf(status: number): 'info' | 'warn' {
  return status >= 500 ? 'warn' : 'info';
}

/** A request that has been answered. */
interface Answered {
  operation: Operation;
  request: RequestInHand;
  requestId: string;
  requester: Known;
  answer: Answer;
  milliseconds: number;
}

/** Records an answered request in the metrics, the log and its span. */
export function record(
  answered: Answered,
  { log, strangers, metrics }: { log: Log; strangers: StrangersLog; metrics: EdgeMetrics },
): void {
  const { operation, request, requester, answer, milliseconds } = answered;
  const { status } = answer.reply;
  metrics.requests.inc({ operation: operation.id, status });
  metrics.duration.observe({ operation: operation.id }, milliseconds / 1000);
  if (answer.accepted) metrics.accepted.inc({ operation: operation.id }, answer.accepted);
  metrics.noteAccepted(answer.accepted);
  if (status === 429 || status === 503)
    metrics.noteRefused(status, {
      bucket: operation.bucket,
      ...(requester.workspaceId !== undefined && { workspaceId: requester.workspaceId }),
    });
  if (answer.rejected.length > 0) metrics.rejected.inc({ operation: operation.id }, answer.rejected.length);
  // Set one by one: building an object with spreads would cost as much as the rest of the line.
  const fields = requestLine(answered, status);
  fields.operation = operation.id;
  fields.workspace_id = requester.workspaceId;
  if (requester.keyId) fields.key_id = requester.keyId;
  if (requester.companyId) fields.company_id = requester.companyId;
  if (answer.repeats) fields.repeats = answer.repeats;
  fields.accepted = answer.accepted;
  fields.rejected = answer.rejected.length;
  if (answer.error) fields.error = answer.error;
  const { span } = request;
  if (span)
    noteRequest(span, operation, {
      'penstock.request.id': answered.requestId,
      'penstock.workspace.id': requester.workspaceId,
      'penstock.objects.accepted': answer.accepted,
      'penstock.objects.rejected': answer.rejected.length,
    });
  if (isKnown(requester, status)) writeLine(log, fields, { level: levelOf(status), message: 'request' });
  else strangers.line(levelOf(status), fields, 'request');
}

/**
 * Whether the caller has a valid key. A key that is used from a wrong address (403) also counts, so that each of its
 * requests is logged.
 */
function isKnown({ workspaceId, companyId }: Known, status: number): boolean {
  return workspaceId !== undefined || companyId !== undefined || status === 403;
}
