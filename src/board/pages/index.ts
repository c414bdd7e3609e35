import type { Service } from '../../platform/lifecycle.ts';
import { createRenderer } from '../../preferences/renderer.ts';
import { openLaneDepths } from '../../queue/depth.ts';
import { createGroupCommit } from '../../queue/enqueue.ts';
import { laneCount } from '../../queue/shards.ts';
import { createWaitingSearch } from '../../queue/waiting.ts';
import type { ConsoleServices, Page, PageServices } from '../console.ts';
import { createFleet } from '../fleet.ts';
import { accountGroupPages } from './account-groups.ts';
import { accountPages } from './accounts.ts';
import { auditPages } from './audit.ts';
import { deadLetterPages } from './dead-letter.ts';
import { deadLetterListPages } from './dead-letters.ts';
import { exportPages } from './exports.ts';
import { groupPages } from './groups.ts';
import { healthPages } from './health.ts';
import { historyPages } from './history.ts';
import { keyPages } from './keys.ts';
import { permissionSetPages } from './permission-sets.ts';
import { preferenceCenterPages } from './preference-centers.ts';
import { requestPages } from './requests.ts';
import { segmentPages } from './segments.ts';
import { sessionPages } from './sessions.ts';
import { streamPages } from './streams.ts';
import { syncPages } from './sync.ts';
import { syncListPages } from './syncs.ts';
import { teamPages } from './teams.ts';
import { userPages } from './user.ts';
import { userActionPages } from './user-actions.ts';
import { userListPages } from './users.ts';
import { workspacePages } from './workspaces.ts';

/** Every route of the console. */
export const pages: Page<PageServices>[] = [
  ...healthPages,
  ...historyPages,
  ...userListPages,
  ...userPages,
  ...userActionPages,
  ...requestPages,
  ...deadLetterListPages,
  ...deadLetterPages,
  ...syncListPages,
  ...syncPages,
  ...streamPages,
  ...groupPages,
  ...segmentPages,
  ...exportPages,
  ...preferenceCenterPages,
  ...workspacePages,
  ...keyPages,
  ...accountPages,
  ...accountGroupPages,
  ...teamPages,
  ...permissionSetPages,
  ...auditPages,
  ...sessionPages,
];

/** One person's action at a time: nothing is gathered. */
const GROUP_COMMIT = {
  maxEnvelopeObjects: 1000,
  maxPendingObjects: 10_000,
  maxPendingBytes: 64 * 1024 * 1024,
  backlog: () => 0,
};

/** Milliseconds that the first page waits for a queue which may hang. */
const DEPTH_TIMEOUT_MS = 1500;

/** What pages use beside the stores. */
export function createServices(given: ConsoleServices): PageServices & Pick<Service, 'stop'> {
  const { connection, config, producer } = given;
  const waiting = createWaitingSearch(connection, laneCount(config), config.QUEUE_TIMEOUT_MS);
  const renderer = createRenderer({ most: 1 });
  const depths = openLaneDepths(connection, { lanes: laneCount(config), timeout: DEPTH_TIMEOUT_MS });
  return {
    ...given,
    waiting,
    depths,
    renderer,
    fleet: createFleet({ ...given, depths }),
    queue: createGroupCommit(producer, { lanes: config.LANES, ...GROUP_COMMIT }),
    stop: async () => void (await Promise.all([waiting.stop(), depths.stop(), renderer.stop()])),
  };
}
