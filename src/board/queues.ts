import { createBullBoard } from '@bull-board/api';
import { BullMQAdapter } from '@bull-board/api/bullMQAdapter';
import type { BeforeHook } from '@bull-board/api/typings/app';
import { ExpressAdapter } from '@bull-board/express';
import type { Express } from 'express';
import { SYNC_QUEUE } from '../jobs/catalog.ts';
import { Queue } from '../queue/bullmq.ts';
import type { QueueConnection } from '../queue/connection.ts';
import { DEAD_LETTER_QUEUE, laneName } from '../queue/lanes.ts';
import { describeLoss } from '../queue/loss.ts';
import type { QueueLoss } from '../store/installation.ts';
import { readable } from './app.ts';

/**
 * Retrying is the one thing that the dashboard may do, and only to dead letters. A retried or removed job
 * of a lane would lose its place, and whatever else is changed in the dead-letter queue is not changed in
 * the table that it is the picture of.
 */
const RETRIES = ['/api/queues/:queueName/:jobId/retry', '/api/queues/:queueName/retry/:queueStatus'];

/** White on red. */
const ALARM = { color: '#b00020', textColor: '#ffffff' };

/**
 * Bull Board over every queue. Its paths start at the root of the server.
 *
 * @param loss what the queue has lost and nobody has confirmed, which stands at the head of every page
 */
export function createQueueBoard(
  connection: QueueConnection,
  lanes: number,
  loss: () => QueueLoss | undefined,
) {
  const open = (name: string) => {
    // The dashboard only looks: the queue's settings are those of who fills it.
    const queue = new Queue(name, { ...connection.options, skipMetasUpdate: true }, connection.factory);
    queue.on('error', () => {});
    return queue;
  };
  const deadLetters = open(DEAD_LETTER_QUEUE);
  const syncs = open(SYNC_QUEUE);
  const laneQueues = Array.from({ length: lanes }, (_, lane) => open(laneName(lane)));

  const router = (readOnly: boolean) => {
    const server = new ExpressAdapter();
    server.setBasePath('/');
    const router = server.getRouter() as Express;
    router.disable('x-powered-by');
    showLoss(server, router, loss);
    createBullBoard({
      serverAdapter: server,
      queues: [
        new BullMQAdapter(deadLetters, {
          readOnlyMode: readOnly,
          displayName: 'Dead letters',
          description: 'Objects that could not be applied, with the reason. Retry replays one, exactly once.',
        }),
        ...laneQueues.map((queue, lane) => {
          const adapter = new BullMQAdapter(queue, {
            displayName: `Lane ${lane}`,
            description: 'Accepted objects on their way to the store, first in, first out.',
            readOnlyMode: true,
          });
          adapter.setFormatter('data', readable);
          return adapter;
        }),
        new BullMQAdapter(syncs, {
          displayName: 'Syncs',
          description:
            'Runs of warehouse integrations that wait or are in work, and the times at which others begin.',
          readOnlyMode: true,
        }),
      ],
      options: {
        handlerHooks: { before: refuseAllButRetries },
        uiConfig: {
          boardTitle: readOnly ? 'Penstock (read only)' : 'Penstock',
          sortQueues: false,
          hideDocsLink: true,
          miscLinks: [{ text: 'Sign out', url: '/sign-out' }],
        },
      },
    });
    return router;
  };

  return {
    router: router(false),
    /** The same, with nothing to press. */
    readOnlyRouter: router(true),
    async stop() {
      await Promise.all([deadLetters, ...laneQueues, syncs].map((queue) => queue.close()));
    },
  };
}

/** Bull Board is given its settings once; what was lost comes and goes, so they are given anew to each page. */
function showLoss(server: ExpressAdapter, router: Express, loss: () => QueueLoss | undefined): void {
  const setUIConfig = server.setUIConfig.bind(server);
  let settings: Parameters<typeof setUIConfig>[0] = {};
  server.setUIConfig = (given) => {
    settings = given ?? {};
    return setUIConfig(given);
  };
  router.use((_request, _response, next) => {
    const found = loss();
    const label = found && describeLoss(found);
    setUIConfig(label ? { ...settings, environment: { label, ...ALARM } } : settings);
    next();
  });
}

const refuseAllButRetries: BeforeHook = ({ method, route }) => {
  if (method === 'get' || RETRIES.includes(route)) return { allow: true };
  return { allow: false, status: 403, message: 'The dashboard can only retry dead letters.' };
};
