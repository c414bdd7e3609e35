import { type Server, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { type ErrorName, errors } from '../errors.ts';
import { newId } from '../platform/ids.ts';
import { closeLingering } from '../platform/listen.ts';
import type { StrangersLog } from '../platform/log.ts';
import { HEAD_SHED } from './heads.ts';
import type { RequestInHand } from './request-in-hand.ts';

/** Node's codes of what never became a request; any other is malformed. */
const entries: Record<string, ErrorName> = {
  ERR_HTTP_REQUEST_TIMEOUT: 'bodyTooSlow',
  HPE_HEADER_OVERFLOW: 'headersTooLarge',
  [HEAD_SHED]: 'unavailable',
};

/** Milliseconds in which a client may read such an answer and close its side. */
const FAREWELL = 1000;

/**
 * Answers what is no HTTP, or takes too long to come, and closes its connection: in JSON, with a request id
 * and a line in the log, as every other request. Node alone would send a bare status line. A request that an
 * operation has in hand already keeps its id, and its line is the operation's.
 */
export function answerBrokenRequests(server: Server, strangers: StrangersLog): void {
  server.on(
    'clientError',
    (error: NodeJS.ErrnoException, socket: Socket & { _httpMessage?: ServerResponse<RequestInHand> }) => {
      const response = socket._httpMessage;
      // Where an answer is under way already, a second one would be read as part of it.
      if (!socket.writable || error.code === 'ECONNRESET' || response?.headersSent) {
        socket.destroy();
        return;
      }
      const entry = entries[error.code ?? ''] ?? 'malformedRequest';
      const { status, message } = errors[entry];
      const inHand = response?.req.requestId;
      const requestId = inHand ?? newId();
      if (inHand) response!.req.broken = entry;
      else strangers.line('info', { request_id: requestId, status, error: error.code }, 'request');
      const body = JSON.stringify({ message });
      const head = [
        `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
        'Content-Type: application/json; charset=utf-8',
        `Content-Length: ${Buffer.byteLength(body)}`,
        `X-Request-Id: ${requestId}`,
        ...['Limit', 'Remaining', 'Reset'].map((name) => `X-RateLimit-${name}: `),
        'X-Content-Type-Options: nosniff',
        ...(status === 503 ? ['Retry-After: 1'] : []),
        'Connection: close',
      ];
      // A client that keeps its half open would keep what its request holds.
      setTimeout(() => socket.destroy(), FAREWELL).unref();
      socket.write(`${head.join('\r\n')}\r\n\r\n${body}`);
      // The parser would take what follows for more of the same, and the connection for broken once more.
      closeLingering(socket);
    },
  );
}
