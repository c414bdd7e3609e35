import type { IncomingMessage } from 'node:http';
import type { Operation } from '../operations/operation.ts';
import type { Allowance } from './rate-limit.ts';
import { levelOf, requestLine } from './request-line.ts';
import type { EdgeServices } from './services.ts';

/** What the log line and the headers say about a request, as far as it got. */
export interface Outcome {
  workspaceId?: string;
  companyId?: string | undefined;
  allowance?: Allowance;
  /** The first request with the same `Idempotency-Key`, whose answer this one gets. */
  repeats?: string;
  accepted: number;
  rejected: number;
  error?: string;
}

/** Counts a request that has been answered, and logs its line. */
export function record(
  operation: Operation,
  request: IncomingMessage,
  requestId: string,
  status: number,
  outcome: Outcome,
  milliseconds: number,
  { log, metrics }: EdgeServices,
): void {
  metrics.requests.inc({ operation: operation.id, status });
  metrics.duration.observe({ operation: operation.id }, milliseconds / 1000);
  if (outcome.accepted) metrics.accepted.inc({ operation: operation.id }, outcome.accepted);
  if (outcome.rejected) metrics.rejected.inc({ operation: operation.id }, outcome.rejected);
  log[levelOf(status)](
    {
      ...requestLine(request, requestId, status, milliseconds),
      operation: operation.id,
      workspace_id: outcome.workspaceId,
      ...(outcome.companyId && { company_id: outcome.companyId }),
      ...(outcome.repeats && { repeats: outcome.repeats }),
      accepted: outcome.accepted,
      rejected: outcome.rejected,
      ...(outcome.error && { error: outcome.error }),
    },
    'request',
  );
}
