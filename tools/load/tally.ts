import type { Answer } from './http-connection.ts';

/** Bounds the report when every error has a text of its own. */
const MAX_KINDS = 50;

/** What the answers of a run said. */
export interface Tally {
  requests: number;
  /** Objects that the service confirmed. */
  accepted: number;
  /** Objects that it refused by name. */
  rejected: number;
  /** How often each error was met: refused objects by their `type`, requests by status and message. */
  errors: Map<string, number>;
}

export function emptyTally(): Tally {
  return { requests: 0, accepted: 0, rejected: 0, errors: new Map() };
}

/** The bodies of POST /users/track, and `{message}` of every other error. */
interface TrackReply {
  message?: string;
  attributes_processed?: number;
  events_processed?: number;
  purchases_processed?: number;
  /** Those about an object name its array. */
  errors?: { type: string; input_array?: string }[];
}

export function countAnswer(tally: Tally, { status, body }: Answer): void {
  tally.requests++;
  let reply: TrackReply;
  try {
    reply = JSON.parse(body);
  } catch {
    countError(tally, `${status} with a body that is not JSON`);
    return;
  }
  if (status === 201) {
    const { attributes_processed = 0, events_processed = 0, purchases_processed = 0 } = reply;
    tally.accepted += attributes_processed + events_processed + purchases_processed;
  }
  let refused = 0;
  for (const error of reply.errors ?? []) {
    if (error.input_array === undefined) continue;
    refused++;
    countError(tally, `object refused: ${error.type}`);
  }
  tally.rejected += refused;
  // A request whose objects were all refused has been counted by them.
  if (status !== 201 && refused === 0) countError(tally, `${status} ${reply.message ?? ''}`.trim());
}

export function countError(tally: Tally, kind: string): void {
  const { errors } = tally;
  const name = errors.has(kind) || errors.size < MAX_KINDS ? kind : 'other';
  errors.set(name, (errors.get(name) ?? 0) + 1);
}
