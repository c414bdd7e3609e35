import { ApiError, BadRequest, errors } from '../errors.ts';
import type { Log } from '../log.ts';
import type { Operation, Reply } from '../operations/operation.ts';
import { RendererBusy } from '../preferences/renderer.ts';
import type { Json } from '../profile/json.ts';
import { QueueUnavailable } from '../queue/lanes.ts';

/** Seconds after which a client that met 503 may try again. */
const RETRY_AFTER = '1';

/**
 * The answer to a request that failed, in the operation's own form. What nobody expected is logged and says
 * nothing of itself.
 */
export function toReply(error: unknown, operation: Operation, log: Log, requestId: string): Reply {
  let status: number = errors.internal.status;
  let message: string = errors.internal.message;
  let details: Json | undefined;
  let headers: Record<string, string> = {};
  if (error instanceof ApiError || error instanceof BadRequest) {
    ({ status, message, headers } = error);
    details = (error as { errors?: Json }).errors;
  } else if (isUnavailable(error)) {
    ({ status, message } = errors.unavailable);
    headers = { 'Retry-After': RETRY_AFTER };
  } else {
    log.error({ err: error, request_id: requestId, operation: operation.id }, 'unexpected error');
  }
  const body = operation.errorBody?.(message, details, status) ?? { message };
  return { status, body, headers };
}

/** Whether the same request may well succeed in a moment. */
export function isUnavailable(error: unknown): boolean {
  return (
    error instanceof QueueUnavailable ||
    error instanceof RendererBusy ||
    (error instanceof ApiError && error.status === 503) ||
    isUnreachable(error)
  );
}

/** How Redis begins an error that is about itself and not about the command: full, starting, or not the one that writes. */
const REDIS_NOT_NOW = /^(OOM|LOADING|MISCONF|READONLY|MASTERDOWN|NOREPLICAS|CLUSTERDOWN|TRYAGAIN|BUSY)\b/;

/**
 * Whether a store or the queue could not be reached, or was held up by someone else (a lock, 55P03; a statement that
 * Postgres ended in time, 57014): its error names a connection or a wait, not a mistake.
 */
function isUnreachable(error: unknown): boolean {
  const { code, message, name } = error as { code?: string; message?: string; name?: string };
  return (
    /^(ECONN|EPIPE|ETIMEDOUT|ENOTFOUND|08|57P0|53|55P03|57014)/.test(code ?? '') ||
    /Connection (is closed|terminated)|Command timed out|max retries|writeable|timeout exceeded|Query read timeout|canceling statement due to/i.test(
      message ?? '',
    ) ||
    REDIS_NOT_NOW.test(message ?? '') ||
    name === 'MaxRetriesPerRequestError'
  );
}
