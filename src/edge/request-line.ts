import type { IncomingMessage } from 'node:http';

/** What cannot name a person, break a line or look like anything but an id. */
const HARMLESS = /^[A-Za-z0-9._-]{1,100}$/;

/** What the log line of every request says, whatever became of it. A client's own id is left out unless it is harmless. */
export function requestLine(
  request: IncomingMessage,
  requestId: string,
  status: number,
  milliseconds: number,
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
