import { v7 as uuidv7 } from 'uuid';
import type { Caller, Reply } from '../../src/operations/operation.ts';

/** biome-ignore lint/suspicious/noExplicitAny: the assertions on the answer check its shape */
export type Answer = Reply & { body: any };

/** Creates a caller for operations that are tried without a server. */
export function callerOf(workspaceId: string, change: Partial<Caller> = {}): Caller {
  return {
    workspaceId,
    requestId: uuidv7(),
    now: Date.now(),
    hasGroup: () => true,
    channelOf: () => 'email',
    isBlocked: () => false,
    ...change,
  };
}
