import { type Server, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import { type ErrorName, errors } from '../errors.ts';
import { newId } from '../ids.ts';

/** Node's codes of what never became a request; any other is malformed. */
const entries: Record<string, ErrorName> = {
  ERR_HTTP_REQUEST_TIMEOUT: 'bodyTooSlow',
  HPE_HEADER_OVERFLOW: 'headersTooLarge',
};

/**
 * Answers what is no HTTP, or takes too long to come, and closes its connection: in JSON and with a request
 * id, as every other answer. Node alone would send a bare status line.
 */
export function answerBrokenRequests(server: Server): void {
  server.on(
    'clientError',
    (error: NodeJS.ErrnoException, socket: Duplex & { _httpMessage?: ServerResponse }) => {
      // Where an answer is under way already, a second one would be read as part of it.
      if (!socket.writable || error.code === 'ECONNRESET' || socket._httpMessage?.headersSent) {
        socket.destroy();
        return;
      }
      const { status, message } = errors[entries[error.code ?? ''] ?? 'malformedRequest'];
      const body = JSON.stringify({ message });
      const head = [
        `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
        'Content-Type: application/json; charset=utf-8',
        `Content-Length: ${Buffer.byteLength(body)}`,
        `X-Request-Id: ${newId()}`,
        ...['Limit', 'Remaining', 'Reset'].map((name) => `X-RateLimit-${name}: `),
        'Connection: close',
      ];
      socket.end(`${head.join('\r\n')}\r\n\r\n${body}`);
    },
  );
}
