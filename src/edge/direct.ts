import type { DirectOperation, Reply } from '../operations/operation.ts';
import { aboutRequest } from './about-request.ts';
import type { Admitted } from './admit.ts';
import { answerOnce } from './answer-once.ts';
import { directAttempt } from './attempts.ts';
import type { EdgeServices } from './services.ts';

/** Carries out an operation that reads or changes the store while its caller waits. */
export async function answerDirect(
  operation: DirectOperation,
  admitted: Admitted,
  services: EdgeServices,
): Promise<Reply> {
  const { request, requestId, caller, body, query, params, idempotent, outcome } = admitted;
  const { config, resources, once, scimTurns } = services;
  const input = { body, query, params, request: aboutRequest(request, config) };
  const handle = (as: string) => {
    const work = () => operation.handle({ ...caller, requestId: as }, input, resources);
    return operation.auth === 'scim' ? scimTurns(work) : work();
  };
  if (idempotent && operation.isRead) await once.read(idempotent, requestId);
  if (!idempotent || operation.isRead) return handle(requestId);
  return answerOnce(once.once(idempotent, directAttempt(requestId, handle)), requestId, outcome);
}
