import { findTrace, type Trace } from '../../jobs/traces.ts';
import { selectByRequest } from '../../store/dead-letters/select-by-request.ts';
import { findTraces } from '../../store/delivery/find-traces.ts';
import type { Resources } from '../operation.ts';
import { type Standing, type Status, standings } from './standing.ts';
import { FARTHEST, idsBetween, millisecondsOf, NEAR } from './time-range.ts';

interface Part {
  trace: Trace;
  status: Status;
}

/** What is known of a request, by the ids of its envelopes. */
type Parts = Map<string, Part>;

/**
 * Looks for a request where its objects can be: in the ledger, where it is by the time of its id; in the lanes, if some
 * of it is not in the ledger; and then in the ledger once more, since an object is in one of the two at any moment.
 *
 * @returns `unknown`: how many of its objects are nowhere; undefined when all are
 */
export async function followRequest(
  { database: { pool }, waiting }: Pick<Resources, 'database' | 'waiting'>,
  workspaceId: string,
  requestId: string,
): Promise<{ objects: Standing[]; unknown: number } | undefined> {
  const parts: Parts = new Map();
  await lookIntoLedger();
  if (missing(parts) !== 0) {
    const from = millisecondsOf(requestId);
    for (const { envelopeId, trace } of await waiting.find(
      requestId,
      workspaceId,
      idsBetween(from, from + FARTHEST),
    ))
      if (!parts.has(envelopeId)) parts.set(envelopeId, { trace, status: 'accepted' });
    await lookIntoLedger();
  }
  const deadLetters = await selectByRequest(pool, workspaceId, requestId);
  if (parts.size === 0 && deadLetters.length === 0) return undefined;
  return {
    objects: standings([...parts.values()], deadLetters),
    unknown: Math.max(0, missing(parts) ?? 0),
  };

  async function lookIntoLedger(): Promise<void> {
    const from = millisecondsOf(requestId);
    const found = await look(from, from + NEAR);
    // The envelopes of one request are made together, but the first ones may be the last of their time.
    const last = Math.max(...found.map(millisecondsOf));
    const end = found.length > 0 ? last + NEAR : from + FARTHEST;
    if (end > from + NEAR) await look(from + NEAR, end);
  }

  async function look(from: number, to: number): Promise<string[]> {
    const rows = await findTraces(pool, requestId, idsBetween(from, to));
    return rows.flatMap(({ envelopeId, traces }) => {
      const trace = findTrace(traces, requestId, workspaceId);
      if (!trace) return [];
      parts.set(envelopeId, { trace, status: 'applied' });
      return [envelopeId];
    });
  }
}

/** Objects that no part has; undefined: there is no part to say how many there are. */
function missing(parts: Parts): number | undefined {
  const [first] = parts.values();
  if (!first) return undefined;
  return [...parts.values()].reduce((left, { trace }) => left - trace.objects.length, first.trace.total);
}
