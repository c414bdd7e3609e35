import { createHash, timingSafeEqual } from 'node:crypto';

const SCHEME = /^bearer +/i;

/**
 * Who may read /metrics: whoever shows the token as `Authorization: Bearer …`, as Prometheus does; with an empty token
 * everyone who reaches the port.
 *
 * @returns whether an Authorization header lets in; it takes as long for a token that is nearly right
 */
export function createMetricsGuard(token: string): (header: string | undefined) => boolean {
  if (token === '') return () => true;
  const wanted = digest(token);
  return (header) =>
    header !== undefined &&
    SCHEME.test(header) &&
    timingSafeEqual(digest(header.replace(SCHEME, '').trim()), wanted);
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
