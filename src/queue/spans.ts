import type { Envelope } from '../jobs/envelope.ts';
import { inSpan, tracing } from '../platform/tracing.ts';
import type { LaneEntry } from './lanes.ts';

/** Requests that one span is linked to; one transaction may hold objects of thousands. */
export const MOST_LINKS = 128;

/** What BullMQ keeps them in, as OpenTelemetry's messaging conventions want to know. */
const system = { 'messaging.system': 'bullmq' };

/** Spans of requests, as `traceparent`, each once, and how many requests there are. */
function tracedRequests(envelopes: Iterable<Envelope | undefined>): { links: string[]; requests: number } {
  const links = new Set<string>();
  let requests = 0;
  for (const envelope of envelopes) {
    // Whatever a lane held: an envelope of another release may have a shape of its own.
    if (!Array.isArray(envelope?.requests)) continue;
    requests += envelope.requests.length;
    for (const request of envelope.requests) {
      const traceparent: unknown = request?.traceparent;
      if (typeof traceparent === 'string' && links.size < MOST_LINKS) links.add(traceparent);
    }
  }
  return { links: [...links], requests };
}

/**
 * Adds entries to their lanes, as a PRODUCER span if a traced request is among them. It is part of the first one's trace,
 * and linked to the others: they share one durable write.
 */
export function traceFlush<Added>(entries: LaneEntry[], add: () => Promise<Added>): Promise<Added> {
  const sdk = tracing;
  if (!sdk) return add();
  const { links, requests } = tracedRequests(entries.map(({ envelope }) => envelope));
  const [parent, ...others] = links;
  // Who began this flush may be another request than those in it.
  if (parent === undefined) return sdk.within(undefined, add);
  const span = sdk.begin('send lanes', { kind: 'PRODUCER', parent, links: others });
  if (!span.isRecording()) return sdk.within(undefined, add);
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

/** Envelopes that a worker has in hand. */
interface InHand {
  lane: number;
  envelope: Envelope;
}

/**
 * Applies envelopes in one transaction, as a CONSUMER span: the beginning of a trace, linked to the requests in it. It is
 * sampled where the first of them was; of others the sampler decides.
 *
 * @param describe what is to be said of the result
 * @returns the ids by which a line of the log names the span, beside the result
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
  if (!span.isRecording()) return { result: await sdk.within(span, transact), ids };
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

/** The lane, where it is one. */
function destination(lanes: number[]): Record<string, string> {
  const [first] = lanes;
  return lanes.every((lane) => lane === first) ? { 'messaging.destination.name': `lane-${first}` } : {};
}

function objectsOf(envelopes: (Envelope | undefined)[]): number {
  let objects = 0;
  for (const envelope of envelopes) objects += envelope?.objects?.length ?? 0;
  return objects;
}
