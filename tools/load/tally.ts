import type { Answer } from './http-connection.ts';

/** Maximum kinds of errors, which limits the report if every error has a different text. */
const MAX_KINDS = 50;

/** Counts of the responses of a run. */
export interface Tally {
  requests: number;
  /** Objects that the service accepted. */
  accepted: number;
  /** Objects that the service rejected individually. */
  rejected: number;
  /** Number of each error: rejected objects by their `type`, requests by status and message. */
  errors: Map<string, number>;
}

export function emptyTally(): Tally {
  return { requests: 0, accepted: 0, rejected: 0, errors: new Map() };
}

/** The body of a response to POST /users/track, or `{message}` for other errors. */
interface TrackReply {
  message?: string;
  attributes_processed?: number;
  events_processed?: number;
  purchases_processed?: number;
  /** Errors about an object name its array. */
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
  // A request whose objects were all rejected has been counted by its objects.
  if (status !== 201 && refused === 0) countError(tally, `${status} ${reply.message ?? ''}`.trim());
}

export function countError(tally: Tally, kind: string): void {
  const { errors } = tally;
  const name = errors.has(kind) || errors.size < MAX_KINDS ? kind : 'other';
  errors.set(name, (errors.get(name) ?? 0) + 1);
}
