import { createBullBoard } from '@bull-board/api';
import { BullMQAdapter } from '@bull-board/api/bullMQAdapter';
import type { BeforeHook } from '@bull-board/api/typings/app';
import { ExpressAdapter } from '@bull-board/express';
import type { Express, NextFunction, Request, Response } from 'express';
import { SYNC_QUEUE } from '../jobs/catalog.ts';
import { type AcceptedObject, requestIndexesOf } from '../jobs/envelope.ts';
import type { Queue } from '../queue/bullmq.ts';
import { openQueueToShow, optionsOfLane } from '../queue/bullmq-queues.ts';
import type { QueueConnection } from '../queue/connection.ts';
import type { DeadLetterJob } from '../queue/dead-letters.ts';
import { DEAD_LETTER_QUEUE, everyLane, laneName, laneTitle } from '../queue/lanes.ts';
import { describeLoss } from '../queue/loss.ts';
import { decodeEnvelope, type WireEnvelope } from '../queue/wire.ts';
import type { QueueLoss } from '../store/installation.ts';

/** Path under which Bull Board is mounted. */
export const QUEUES_PATH = '/queues';

/** Maximum number of objects shown per envelope. A page of jobs would otherwise have several megabytes. */
const MAX_OBJECTS = 100;

/**
 * Formats an envelope for Bull Board: each request with its objects, in the order in which they are applied. Malformed
 * data is shown unchanged, so that an operator can inspect it.
 */
function readable(wire: WireEnvelope) {
  const envelope = decodeEnvelope(wire);
  if (!Array.isArray(envelope?.objects) || !Array.isArray(envelope.requests)) return envelope;
  const byRequest = new Map<number | undefined, AcceptedObject[]>();
  const indexes = requestIndexesOf(envelope);
  envelope.objects.slice(0, MAX_OBJECTS).forEach((object, index) => {
    const shown = byRequest.get(indexes[index]);
    if (shown) shown.push(object);
    else byRequest.set(indexes[index], [object]);
  });
  return {
    count: envelope.objects.length,
    ...(envelope.objects.length > MAX_OBJECTS && { shown: MAX_OBJECTS }),
    ...(envelope.replay && { replay: true }),
    requests: [...byRequest].map(([index, objects]) => ({
      ...(index !== undefined && envelope.requests[index]),
      objects,
    })),
  };
}

/** Formats an envelope for viewers who may not see user data: its requests and its number of objects. */
function masked(envelope: WireEnvelope) {
  if (!Array.isArray(envelope?.objects) || !Array.isArray(envelope.requests)) return {};
  return { count: envelope.objects.length, requests: envelope.requests.slice(0, MAX_OBJECTS) };
}

/** Formats a dead letter for viewers who may not see user data. */
function maskedLetter(letter: Partial<DeadLetterJob> | undefined) {
  const { dead_letter_id, request_id, workspace_id } = letter ?? {};
  return { dead_letter_id, request_id, workspace_id };
}

/** Hides failure reasons, which can quote values of an object. Bull Board has no formatter for them. */
class WithoutReasons extends BullMQAdapter {
  override async getJobs(...given: Parameters<BullMQAdapter['getJobs']>) {
    return (await super.getJobs(...given)).map(withoutReason);
  }

  override async getJob(id: string) {
    const job = await super.getJob(id);
    return job && withoutReason(job);
  }

  override async getJobLogs() {
    return [];
  }
}

function withoutReason<Shown extends { failedReason: string; stacktrace: string[] | null }>(
  job: Shown,
): Shown {
  delete (job as Partial<Shown>).failedReason;
  job.stacktrace = [];
  return job;
}

/** The console's fonts and colors for Bull Board, as in assets/console.css: first the light theme, then the dark one. */
const tokens = {
  background: ['#fbfbfa', '#121315'],
  foreground: ['#1b1c1e', '#e8e9eb'],
  card: ['#ffffff', '#191b1e'],
  'card-foreground': ['#1b1c1e', '#e8e9eb'],
  popover: ['#ffffff', '#191b1e'],
  'popover-foreground': ['#1b1c1e', '#e8e9eb'],
  primary: ['#2f55cf', '#4a6ee0'],
  'primary-foreground': ['#ffffff', '#ffffff'],
  secondary: ['#f4f4f2', '#202327'],
  'secondary-foreground': ['#1b1c1e', '#e8e9eb'],
  muted: ['#f4f4f2', '#202327'],
  'muted-foreground': ['#62656b', '#9ba1a9'],
  accent: ['#e9edfa', '#20283f'],
  'accent-foreground': ['#1b1c1e', '#e8e9eb'],
  border: ['#e3e3df', '#2e3237'],
  input: ['#c9c9c5', '#454a51'],
  ring: ['#2f55cf', '#4a6ee0'],
  sidebar: ['#f4f4f2', '#202327'],
  'sidebar-foreground': ['#1b1c1e', '#e8e9eb'],
  'sidebar-accent': ['#e2e6f5', '#262e45'],
  'sidebar-accent-foreground': ['#1b1c1e', '#e8e9eb'],
  'sidebar-border': ['#e3e3df', '#2e3237'],
} as const;

const FONTS = {
  'font-sans': 'system-ui, "Segoe UI", "Helvetica Neue", "DejaVu Sans", sans-serif',
  'font-mono': 'ui-monospace, "SF Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace',
  radius: '8px',
};

const themeOf = (scheme: 'light' | 'dark') => ({
  ...FONTS,
  ...Object.fromEntries(
    Object.entries(tokens).map(([name, [light, dark]]) => [name, scheme === 'light' ? light : dark]),
  ),
});

/** White on red. */
const ALARM = { color: '#b00020', textColor: '#ffffff' };

/**
 * Creates a read-only Bull Board for every queue. A retried or removed lane job would lose its position in the order.
 * The dead-letter queue only mirrors the table, so a change in the queue would not reach the table.
 *
 * @param loss the data loss that the queue reported and no operator has confirmed; shown at the top of every page
 */
export function createQueueBoard(
  connection: QueueConnection,
  lanes: number,
  loss: () => QueueLoss | undefined,
) {
  const deadLetters = openQueueToShow(connection, DEAD_LETTER_QUEUE);
  const syncs = openQueueToShow(connection, SYNC_QUEUE);
  const laneQueues = everyLane(lanes).map((lane) =>
    openQueueToShow(connection, laneName(lane), optionsOfLane(connection, lane)),
  );

  const router = (whole: boolean) => {
    const Adapter = whole ? BullMQAdapter : WithoutReasons;
    const adapterOf = (queue: Queue, about: { displayName: string; description: string }) =>
      new Adapter(queue, { ...about, readOnlyMode: true });
    const server = new ConsoleAdapter();
    server.setBasePath(QUEUES_PATH);
    const router = server.getRouter() as Express;
    router.disable('x-powered-by');
    router.use((_request, _response, next) => {
      const currentLoss = loss();
      server.showLoss(currentLoss && describeLoss(currentLoss));
      next();
    });
    const letters = adapterOf(deadLetters, {
      displayName: 'Dead letters',
      description:
        'The latest objects that could not be applied. The page “Dead letters” of the console has all.',
    });
    if (!whole) letters.setFormatter('data', maskedLetter);
    const lanesShown = laneQueues.map((queue, lane) => {
      const adapter = adapterOf(queue, {
        displayName: `Lane ${laneTitle(connection.layout, lane)}`,
        description: 'Accepted objects on their way to the store, first in, first out.',
      });
      adapter.setFormatter('data', whole ? readable : masked);
      return adapter;
    });
    const syncsShown = adapterOf(syncs, {
      displayName: 'Syncs',
      description: 'Runs of warehouse integrations that wait or run, and the start times of scheduled runs.',
    });
    createBullBoard({
      serverAdapter: server,
      queues: [letters, ...lanesShown, syncsShown],
      options: {
        handlerHooks: { before: refuseChanges },
        uiConfig: {
          boardTitle: 'Queues',
          sortQueues: false,
          hideDocsLink: true,
          theme: { light: themeOf('light'), dark: themeOf('dark') },
          miscLinks: [
            { text: 'Back to the console', url: '/' },
            { text: 'Sign out', url: '/sign-out' },
          ],
        },
      },
    });
    return router;
  };

  return {
    router: router(true),
    /** The same pages without data that identifies the users concerned. */
    maskedRouter: router(false),
    async stop() {
      await Promise.all([deadLetters, ...laneQueues, syncs].map((queue) => queue.close()));
    },
  };
}

type UiConfig = Parameters<ExpressAdapter['setUIConfig']>[0];
type EntryRoute = Parameters<ExpressAdapter['setEntryRoute']>[0];

/** Matches the style sheets of other hosts in Bull Board's page. The console allows none, and the theme names local fonts. */
const FOREIGN_STYLES = /<link\b[^>]*\bhref="https?:[^>]*>\s*/g;

/**
 * Link to the console after the title in the header of each page. Bull Board itself offers it only in a menu. The
 * properties are those of Bull Board's style sheet.
 */
const WAY_BACK = `<style>
.to-console{position:fixed;z-index:100;left:7.9rem;top:calc(var(--header-offset) - var(--header-height) + 1.45rem);font:500 .8125rem var(--font-sans);color:var(--primary)}
@media (max-width:768px){.to-console{left:7.25rem;top:calc(var(--header-offset) - var(--header-height) + .95rem)}}
</style>
<a class="to-console" href="/">Back to the console</a>
`;

/**
 * Bull Board's adapter for Express, with a link to the console, without style sheets of other hosts, and with the current
 * data loss on each page. Bull Board takes its settings only once, so they are set again per request.
 */
class ConsoleAdapter extends ExpressAdapter {
  #settings: UiConfig = {};

  override setUIConfig(settings: UiConfig = {}) {
    this.#settings = settings;
    return super.setUIConfig(settings);
  }

  override setEntryRoute({ method, route, handler }: EntryRoute) {
    const router = this.getRouter() as Express;
    router[method](route, (_request: Request, response: Response, next: NextFunction) => {
      const { name, params } = handler({ basePath: this.basePath, uiConfig: this.uiConfig });
      response.render(name, params, (error: Error | null, page: string) => {
        if (error) next(error);
        else response.send(page.replace(FOREIGN_STYLES, '').replace('<div id="root">', `${WAY_BACK}$&`));
      });
    });
    return this;
  }

  /** @param label text at the top of each page; undefined: no text */
  showLoss(label: string | undefined): void {
    super.setUIConfig(label ? { ...this.#settings, environment: { label, ...ALARM } } : this.#settings);
  }
}

/** Rejects every change. Bull Board does this for a read-only queue, but not for actions on all queues. */
const refuseChanges: BeforeHook = ({ method }) =>
  method === 'get' ? { allow: true } : { allow: false, status: 403, message: 'The queues are read-only.' };
