import type { IncomingMessage } from 'node:http';
import type { AcceptedObject } from '../jobs/envelope.ts';
import type { Json } from '../profile/json.ts';
import { jsonBytesAtLeast } from '../profile/json-size.ts';

/**
 * Bytes of the JSON text of a request's accepted objects, about: the length of its body, which costs a look at
 * a header. A compressed body, or one without a length, says nothing of them, and they are measured.
 */
export function bytesOf({ headers }: IncomingMessage, objects: AcceptedObject[]): number {
  if (headers['content-length'] !== undefined && headers['content-encoding'] === undefined) {
    return Number(headers['content-length']);
  }
  return objects.reduce((bytes, object) => bytes + jsonBytesAtLeast(object as unknown as Json), 0);
}
