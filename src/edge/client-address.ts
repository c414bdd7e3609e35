import type { IncomingMessage } from 'node:http';

/**
 * Where a request comes from: the socket's address, or, behind `hops` trusted proxies, the entry that the
 * outermost of them wrote into X-Forwarded-For. Entries further left are the client's own claim.
 */
export function clientAddress(request: IncomingMessage, hops: number): string {
  const socket = request.socket.remoteAddress ?? '';
  if (hops === 0) return socket;
  const header = request.headers['x-forwarded-for'];
  const forwarded = (Array.isArray(header) ? header.join(',') : (header ?? ''))
    .split(',')
    .map((part) => part.trim());
  return forwarded.filter(Boolean).at(-hops) ?? socket;
}
