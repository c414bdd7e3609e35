import type { IncomingMessage } from 'node:http';
import type { Operation } from '../operations/operation.ts';
import type { Answer, Known } from './reply.ts';
import type { EdgeServices } from './services.ts';

/** What cannot name a person, break a line or look like anything but an id. */
const HARMLESS = /^[A-Za-z0-9._-]{1,100}$/;

/** What the log line of every request says, whatever became of it. A client's own id is left out unless it is harmless. */
export function requestLine(
  { request, requestId, milliseconds }: Pick<Answered, 'request' | 'requestId' | 'milliseconds'>,
  status: number,
): Record<string, unknown> {
  const theirs = request.headers['x-request-id'];
  return {
    request_id: requestId,
    status,
    ms: Math.round(milliseconds * 10) / 10,
    ...(typeof theirs === 'string' && HARMLESS.test(theirs) && { client_request_id: theirs }),
  };
}

/** Of that line. */
export function levelOf(status: number): 'info' | 'warn' {
  return status >= 500 ? 'warn' : 'info';
}

/** A request that has been answered. */
export interface Answered {
  operation: Operation;
  request: IncomingMessage;
  requestId: string;
  known: Known;
  answer: Answer;
  milliseconds: number;
}

/** Counts a request that has been answered, and logs its line. */
export function record(
  answered: Answered,
  { log, strangers, metrics }: Pick<EdgeServices, 'log' | 'strangers' | 'metrics'>,
): void {
  const { operation, known, answer, milliseconds } = answered;
  const { status } = answer.reply;
  metrics.requests.inc({ operation: operation.id, status });
  metrics.duration.observe({ operation: operation.id }, milliseconds / 1000);
  if (answer.accepted) metrics.accepted.inc({ operation: operation.id }, answer.accepted);
  if (answer.rejected) metrics.rejected.inc({ operation: operation.id }, answer.rejected);
  const fields = {
    ...requestLine(answered, status),
    operation: operation.id,
    workspace_id: known.workspaceId,
    ...(known.companyId && { company_id: known.companyId }),
    ...(answer.repeats && { repeats: answer.repeats }),
    accepted: answer.accepted,
    rejected: answer.rejected,
    ...(answer.error && { error: answer.error }),
  };
  if (isKnown(known, status)) log[levelOf(status)](fields, 'request');
  else strangers.line(levelOf(status), fields, 'request');
}

/** Whether somebody with a key asked. One that is used from a wrong address is worth each of its lines. */
function isKnown({ workspaceId, companyId }: Known, status: number): boolean {
  return workspaceId !== undefined || companyId !== undefined || status === 403;
}
