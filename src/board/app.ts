import type { IncomingMessage } from 'node:http';
import type { Express, NextFunction, Request, Response, Router } from 'express';
import express from 'express';
import helmet from 'helmet';
import type { Lacking } from '../checks/readings.ts';
import { isLeaving } from '../platform/lifecycle.ts';
import { namesOneHost, targetOf } from '../platform/listen.ts';
import {
  addClockMetric,
  addDependencyMetric,
  addSpanMetric,
  createMetricsGuard,
  createRegistry,
} from '../processes/metrics.ts';
import { ownProblems } from '../processes/process.ts';
import { addLossMetric, printedLoss } from '../queue/loss.ts';
import type { QueueLoss } from '../store/installation.ts';
import { Sorry, sendSorry, viewerOf } from './console.ts';
import { createAssets } from './files.ts';
import type { Live } from './live.ts';
import { QUEUES_PATH } from './queues.ts';
import { createSignIn, type SignInOptions } from './sign-in.ts';

/** Methods that change nothing. */
const SAFE = ['GET', 'HEAD', 'OPTIONS'];

/**
 * Whether a request that may change something was sent by a page of this very host and port. A cookie alone does not
 * prove it, as cookies are shared by all ports of a host. Browsers send at least one of the two headers with every such
 * request, so a request with neither is refused.
 */
function isSameOrigin({ method = '', headers }: IncomingMessage): boolean {
  if (SAFE.includes(method)) return true;
  const site = headers['sec-fetch-site'];
  if (site !== undefined && site !== 'same-origin') return false;
  if (headers.origin === undefined) return site === 'same-origin';
  // The scheme is left out: behind a proxy that ends TLS, the page's is https and ours http.
  return URL.canParse(headers.origin) && new URL(headers.origin).host === headers.host;
}

/** The queue answers within a fraction of this, or not at all: BullMQ waits without end for a connection. */
const TIMEOUT_MS = 10_000;

/**
 * Nothing comes from anywhere but this server. No rule asks for https: the console is served on loopback.
 *
 * @param sources what a page may load, by kind
 */
const securityHeaders = (sources: Record<string, string[]>) =>
  helmet({
    contentSecurityPolicy: {
      useDefaults: false,
      directives: {
        ...sources,
        imgSrc: ["'self'", 'data:'],
        objectSrc: ["'none'"],
        formAction: ["'self'"],
        frameAncestors: ["'none'"],
      },
    },
    strictTransportSecurity: false,
    // With no-referrer, a browser would send its forms without the origin that they are checked for.
    referrerPolicy: { policy: 'same-origin' },
  });

/** Our own pages: no script and no style but those of our files. */
const ofConsole = securityHeaders({
  defaultSrc: ["'none'"],
  scriptSrc: ["'self'"],
  styleSrc: ["'self'"],
  connectSrc: ["'self'"],
  // Previews of preference centers, which have a policy of their own.
  frameSrc: ["'self'"],
  baseUri: ["'none'"],
});

/** Bull Board's components set styles on elements; the fonts that it asks the web for do not come. */
const ofQueues = securityHeaders({
  defaultSrc: ["'self'"],
  styleSrc: ["'self'", "'unsafe-inline'"],
  baseUri: ["'self'"],
});

export interface BoardAppOptions extends Omit<SignInOptions, 'isPostgresAway'> {
  /** The pages of the console. */
  pages: Router;
  /** What of them changes by itself. */
  live: Live;
  /** Bull Board, and the one for people who may not see whom jobs are about. */
  queues: Express;
  maskedQueues: Express;
  /** Whether the queue is connected. */
  ready(): boolean;
  /** What the process cannot do without and did not have at its last look, by name. */
  lacking(): Lacking[];
  /** Where the queue is. */
  kind: 'redis' | 'postgres';
  /** What the queue has lost and nobody has confirmed. */
  loss(): QueueLoss | undefined;
  clockSkew(): number | undefined;
  /** METRICS_TOKEN. */
  metricsToken: string;
}

/** The console's stages, in order: only /healthz, /readyz, /metrics and /sign-in are reached without a session. */
export function createBoardApp({
  pages,
  live,
  queues,
  maskedQueues,
  ready,
  lacking,
  kind,
  loss,
  clockSkew,
  metricsToken,
  ...signIn
}: BoardAppOptions): Express {
  const { log, strangers } = signIn;
  const missing = () => lacking().map(({ name }) => name);
  const app = express();
  app.enable('case sensitive routing');
  app.enable('strict routing');
  app.disable('x-powered-by');
  app.use(refuseUnclear);
  const addPage = (path: string, answer: (response: Response) => void) =>
    app
      .route(path)
      .get((_request, response) => answer(response))
      .all(refuseOtherMethods);
  addPage('/healthz', (response) => response.json({ message: 'alive' }));
  // From the last look, a few seconds ago: whoever asks again and again costs the stores nothing.
  addPage('/readyz', (response) => {
    const found = missing();
    const leaving = isLeaving();
    const ready = found.length === 0 && !leaving;
    const message = ready ? 'ready' : 'not ready';
    const lost = loss();
    const body = {
      ...{ message, missing: found, ...(lost && { loss: printedLoss(lost) }) },
      ...(leaving && { leaving }),
      ...ownProblems(
        { connection: { kind }, dependencies: { lacking } },
        { missing: found, loss: lost, own: {} },
      ),
    };
    response.status(ready ? 200 : 503).json(body);
  });
  app.route('/metrics').get(showMetrics(metricsToken, { loss, missing, clockSkew })).all(refuseOtherMethods);
  app.use(ofConsole);
  app.use(QUEUES_PATH, ofQueues);
  app.use('/assets', createAssets());
  app.use(refuseOtherOrigins);
  app.use(refusePacked);
  app.use(createSignIn({ ...signIn, isPostgresAway: () => missing().includes('postgres') }));
  app.route('/events').get(live.serve).all(refuseOtherMethods);
  app.use(pages);
  // Bull Board takes its API in any case.
  app.use(/^\/queues\/api(?=\/|$)/i, forbidCaching, answerInTime(ready));
  app.use(QUEUES_PATH, refuseChanges, boundPages, (request, response, next) => {
    const { full, accountId } = viewerOf(response);
    // What the lanes hold is of all companies: only who runs the installation sees it.
    (full && accountId === undefined ? queues : maskedQueues)(request, response, next);
  });
  app.use((request, response) => {
    sendSorry(request, response, new Sorry(404, 'Page not found.'));
  });
  // biome-ignore lint/complexity/useMaxParams: Express knows an error handler by its four parameters.
  app.use((error: { status?: number }, _request: Request, response: Response, _next: NextFunction) => {
    const status = error.status ?? 500;
    const isKnown = viewerOf(response) !== undefined;
    if (status >= 500 && isKnown) log.error({ err: error }, 'request to the console failed');
    else if (status >= 500) strangers.line('error', { err: error }, 'request to the console failed');
    // What was begun can only be cut off, so that nobody takes it for whole.
    if (response.headersSent) response.destroy();
    else response.status(status).json({ message: status >= 500 ? 'Internal Server Error' : 'Bad Request' });
  });
  return app;
}

function refuseOtherMethods(_request: Request, response: Response): void {
  response.status(405).set('Allow', 'GET, HEAD').json({ message: 'Method Not Allowed' });
}

/** Of this process: memory, and for how long its event loop was held; and what it knows of the queue's losses. */
function showMetrics(
  token: string,
  { loss, missing, clockSkew }: Pick<BoardAppOptions, 'loss' | 'clockSkew'> & { missing(): string[] },
) {
  const registry = createRegistry('board');
  addLossMetric(registry, loss);
  addDependencyMetric(registry, missing);
  addClockMetric(registry, clockSkew);
  addSpanMetric(registry);
  const mayRead = createMetricsGuard(token);
  return async (request: Request, response: Response) => {
    if (mayRead(request.headers.authorization))
      response.set('Content-Type', registry.contentType).send(await registry.metrics());
    else response.status(401).set('WWW-Authenticate', 'Bearer').json({ message: 'Unauthorized' });
  };
}

/** What says twice where it goes, or names no path. */
function refuseUnclear(request: Request, response: Response, next: NextFunction): void {
  if (!namesOneHost(request))
    response.status(400).set('Connection', 'close').json({ message: 'Bad Request' });
  else if (targetOf(request) !== request.url) response.status(404).json({ message: 'Not Found' });
  else next();
}

function refuseOtherOrigins(request: Request, response: Response, next: NextFunction): void {
  if (isSameOrigin(request)) next();
  else response.status(403).json({ message: 'This request must come from a page of the console.' });
}

/** Jobs on a page of the console: each may be an envelope of megabytes, and all of a page are in memory at once. */
const MOST_JOBS_PER_PAGE = 20;

/** Bull Board shows as many jobs on a page as it is asked for; who asks for more gets a page of the most. */
function boundPages(request: Request, _response: Response, next: NextFunction): void {
  const [path, sent = ''] = request.url.split(/\?(.*)/s);
  const query = new URLSearchParams(sent);
  if (query.getAll('jobsPerPage').some((number) => !(Number(number) <= MOST_JOBS_PER_PAGE))) {
    query.set('jobsPerPage', String(MOST_JOBS_PER_PAGE));
    request.url = `${path}?${query}`;
  }
  next();
}

/** Browsers pack nothing that they send here; the readers of bodies behind this would unpack it, also with Brotli. */
function refusePacked(request: Request, response: Response, next: NextFunction): void {
  if ((request.headers['content-encoding'] ?? 'identity') === 'identity') next();
  else response.status(415).json({ message: 'Unsupported Media Type' });
}

/** Nothing is done to the queues by themselves: what a job is the picture of would stay as it is. */
function refuseChanges(request: Request, response: Response, next: NextFunction): void {
  if (SAFE.includes(request.method)) next();
  else response.status(403).json({ message: 'The queues are read-only.' });
}

/** What people sent is not left behind in the browser. */
function forbidCaching(_request: Request, response: Response, next: NextFunction): void {
  response.set('Cache-Control', 'no-store');
  next();
}

/** 503 where the queue does not answer. */
function answerInTime(ready: () => boolean) {
  return (_request: Request, response: Response, next: NextFunction) => {
    const giveUp = () => {
      if (!response.headersSent) response.status(503).json({ message: 'The queue does not answer.' });
    };
    if (!ready()) return giveUp();
    const timer = setTimeout(giveUp, TIMEOUT_MS);
    response.on('close', () => clearTimeout(timer));
    next();
  };
}
