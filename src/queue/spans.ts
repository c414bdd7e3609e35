import type { Envelope } from '../jobs/envelope.ts';
import { inSpan, tracing } from '../platform/tracing.ts';
import type { LaneEntry } from './lanes.ts';

/** Maximum number of linked requests per span; one transaction may hold objects of thousands of requests. */
export const MAX_LINKS = 128;

/** The messaging system, an attribute of OpenTelemetry's messaging conventions. */
const system = { 'messaging.system': 'bullmq' };

/** Collects the distinct `traceparent` values of the requests, and counts the requests. */
function tracedRequests(envelopes: Iterable<Envelope | undefined>): { links: string[]; requests: number } {
  const links = new Set<string>();
  let requests = 0;
  for (const envelope of envelopes) {
    // Envelopes of another release may have a different form.
    if (!Array.isArray(envelope?.requests)) continue;
    requests += envelope.requests.length;
    for (const request of envelope.requests) {
      const traceparent: unknown = request?.traceparent;
      if (typeof traceparent === 'string' && links.size < MAX_LINKS) links.add(traceparent);
    }
  }
  return { links: [...links], requests };
}

/**
 * Adds entries to their lanes, in a PRODUCER span if a traced request is among them. The span is part of the first
 * request's trace and is linked to the other requests, because they share one durable write.
 */
export function traceFlush<Added>(entries: LaneEntry[], add: () => Promise<Added>): Promise<Added> {
  const sdk = tracing;
  if (!sdk) return add();
  const { links, requests } = tracedRequests(entries.map(({ envelope }) => envelope));
  const [parent, ...others] = links;
  // The add runs outside of any span, because the request that started this flush may not be in it.
  if (parent === undefined) return sdk.withSpan(undefined, add);
  const span = sdk.begin('send lanes', { kind: 'PRODUCER', parent, links: others });
  if (!span.isRecording()) return sdk.withSpan(undefined, add);
  span.setAttributes({
    ...system,
    ...destination(entries.map(({ lane }) => lane)),
    'messaging.operation.type': 'send',
    'messaging.operation.name': 'send',
    'messaging.batch.message_count': entries.length,
    'penstock.requests': requests,
    'penstock.objects': objectsOf(entries.map(({ envelope }) => envelope)),
  });
  return inSpan(sdk, span, add);
}

/** An envelope that a worker processes. */
interface InHand {
  lane: number;
  envelope: Envelope;
}

/**
 * Applies envelopes in one transaction, in a CONSUMER span that starts a trace and is linked to the traces of their
 * requests. It is sampled if the first request was sampled; without traced requests the sampler decides.
 *
 * @param describe returns the attributes for a result
 * @returns the result, and the ids with which log lines name the span
 */
export async function traceTransaction<Result>(
  deliveries: InHand[],
  transact: () => Promise<Result>,
  describe: (result: Result) => Record<string, string | number>,
): Promise<{ result: Result; ids: object }> {
  const sdk = tracing;
  if (!sdk) return { result: await transact(), ids: {} };
  const envelopes = deliveries.map(({ envelope }) => envelope);
  const { links, requests } = tracedRequests(envelopes);
  const span = sdk.begin('process lanes', { kind: 'CONSUMER', links });
  const ids = sdk.idsOf(span);
  if (!span.isRecording()) return { result: await sdk.withSpan(span, transact), ids };
  span.setAttributes({
    ...system,
    ...destination(deliveries.map(({ lane }) => lane)),
    'messaging.operation.type': 'process',
    'messaging.operation.name': 'process',
    'messaging.batch.message_count': deliveries.length,
    'penstock.requests': requests,
    'penstock.objects': objectsOf(envelopes),
  });
  const result = await inSpan(sdk, span, async () => {
    const done = await transact();
    span.setAttributes(describe(done));
    return done;
  });
  return { result, ids };
}

/** The name of the lane, if all entries have the same one. */
function destination(lanes: number[]): Record<string, string> {
  const [first] = lanes;
  return lanes.every((lane) => lane === first) ? { 'messaging.destination.name': `lane-${first}` } : {};
}

function objectsOf(envelopes: (Envelope | undefined)[]): number {
  let objects = 0;
  for (const envelope of envelopes) objects += envelope?.objects?.length ?? 0;
  return objects;
}
