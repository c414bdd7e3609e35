import type { AcceptedObject, Envelope } from '../jobs/envelope.ts';

/** Objects of an envelope that the dashboard shows: a page of jobs would else be several megabytes. */
const MOST_OBJECTS = 100;

/**
 * An envelope as the dashboard shows it: each request with its objects under it, in the order in which they
 * take effect. What is no envelope is shown as it is: it is worth a look.
 */
export function readable(envelope: Envelope) {
  if (!Array.isArray(envelope?.objects)) return envelope;
  const byRequest = new Map<number, Omit<AcceptedObject, 'request'>[]>();
  for (const { request, ...object } of envelope.objects.slice(0, MOST_OBJECTS)) {
    byRequest.set(request, [...(byRequest.get(request) ?? []), object]);
  }
  return {
    count: envelope.objects.length,
    ...(envelope.objects.length > MOST_OBJECTS && { shown: MOST_OBJECTS }),
    ...(envelope.replay && { replay: true }),
    requests: [...byRequest].map(([request, objects]) => ({ ...envelope.requests[request], objects })),
  };
}
