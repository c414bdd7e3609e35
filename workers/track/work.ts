import type { AcceptedObject } from '../../src/jobs/envelope.ts';

/** One accepted object on its way into the store. */
export interface Work {
  workspaceId: string;
  requestId: string;
  lane: number;
  /** Place in the batch; orders what the batch does to several profiles. */
  ordinal: number;
  object: AcceptedObject;
}

/** Objects of different workspaces never share a name. */
export function scoped(workspaceId: string, name: string): string {
  return `${workspaceId}\0${name}`;
}
