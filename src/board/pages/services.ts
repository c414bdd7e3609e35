import type { openLaneDepths } from '../../queue/depth.ts';
import type { GroupCommit } from '../../queue/enqueue.ts';
import type { createWaitingSearch } from '../../queue/waiting.ts';
import type { ConsoleServices } from '../console.ts';

/** What pages use: the stores, what waits in the lanes, and a way into them. */
export interface PageServices extends ConsoleServices {
  waiting: ReturnType<typeof createWaitingSearch>;
  queue: GroupCommit;
  depths: ReturnType<typeof openLaneDepths>;
}
