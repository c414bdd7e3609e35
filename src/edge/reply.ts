import type { ServerResponse } from 'node:http';
import type { Json } from '../profile/json.ts';
import type { Allowance } from './rate-limit.ts';

/**
 * Sends a JSON answer with the headers that every answer has. Before a limit is known its three headers are
 * there and empty, as clients of the protocol expect.
 */
export function sendJson(
  response: ServerResponse,
  status: number,
  body: Json | undefined,
  requestId: string,
  allowance: Allowance | undefined,
  headers: Record<string, string>,
): void {
  const text = body === undefined ? '' : JSON.stringify(body);
  response.writeHead(status, {
    ...(text && { 'Content-Type': 'application/json; charset=utf-8' }),
    'Content-Length': Buffer.byteLength(text),
    'X-Request-Id': requestId,
    'X-RateLimit-Limit': allowance?.limit ?? '',
    'X-RateLimit-Remaining': allowance?.remaining ?? '',
    'X-RateLimit-Reset': allowance?.reset ?? '',
    'X-Content-Type-Options': 'nosniff',
    ...headers,
  });
  response.end(text);
}
