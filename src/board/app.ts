import type { IncomingMessage } from 'node:http';
import type { Express, NextFunction, Request, Response, Router } from 'express';
import express from 'express';
import helmet from 'helmet';
import { isLeaving } from '../platform/lifecycle.ts';
import { namesOneHost, targetOf } from '../platform/listen.ts';
import {
  addClockMetric,
  addDependencyMetric,
  addSpanMetric,
  createMetricsGuard,
  createRegistry,
} from '../processes/metrics.ts';
import { type ProcessHealth, readyzProblems } from '../processes/readyz.ts';
import { addLossMetric, printedLoss } from '../queue/loss.ts';
import { PageError, sendErrorPage, viewerOf } from './console.ts';
import { createAssets } from './files.ts';
import type { Live } from './live.ts';
import { QUEUES_PATH } from './queues.ts';
import { createSignIn, type SignInOptions } from './sign-in.ts';

/** HTTP methods that change nothing. */
const SAFE = ['GET', 'HEAD', 'OPTIONS'];

/**
 * Whether a request that may change something was sent by a page of this host and port. The session cookie does not
 * prove it, because cookies are shared by all ports of a host. Browsers send at least one of the two headers with such
 * a request, so a request without both is rejected.
 */
function isSameOrigin({ method = '', headers }: IncomingMessage): boolean {
  if (SAFE.includes(method)) return true;
  const site = headers['sec-fetch-site'];
  if (site !== undefined && site !== 'same-origin') return false;
  if (headers.origin === undefined) return site === 'same-origin';
  // The scheme is not compared. If a proxy terminates TLS, the page uses https and this server http.
  return URL.canParse(headers.origin) && new URL(headers.origin).host === headers.host;
}

/** Milliseconds after which a queue request fails. BullMQ itself waits for a connection indefinitely. */
const TIMEOUT_MS = 10_000;

/**
 * Creates the security headers. Pages load resources only from this server. https is not enforced, because the console
 * itself is served over http, for example on loopback.
 *
 * @param sources what a page may load, by resource type
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
    // With no-referrer, a browser would submit forms with `Origin: null`, and the origin check would reject them.
    referrerPolicy: { policy: 'same-origin' },
  });

/** Headers of console pages. They load scripts and styles only from the asset files. */
const ofConsole = securityHeaders({
  defaultSrc: ["'none'"],
  scriptSrc: ["'self'"],
  styleSrc: ["'self'"],
  connectSrc: ["'self'"],
  // Previews of preference centers. Their responses have their own policy.
  frameSrc: ["'self'"],
  baseUri: ["'none'"],
});

/** Headers of Bull Board. Its components need inline styles. */
const ofQueues = securityHeaders({
  defaultSrc: ["'self'"],
  styleSrc: ["'self'", "'unsafe-inline'"],
  baseUri: ["'self'"],
});

/** Handlers and readings that the routes of the console use. */
interface BoardParts {
  /** The pages of the console. */
  pages: Router;
  /** Server-sent events for the parts of pages that change without an action. */
  live: Live;
  /** Bull Board. `maskedQueues` is for viewers who may not see user data. */
  queues: Express;
  maskedQueues: Express;
  /** Whether the queue is connected. */
  ready(): boolean;
  health: ProcessHealth;
  /** Difference to the clock of Postgres in seconds; undefined if it is not measured. */
  clockSkew(): number | undefined;
  /** Value of METRICS_TOKEN. */
  metricsToken: string;
}

/**
 * Builds the console's middleware, in order. /healthz, /readyz, /metrics, /assets, /sign-in and /invitation need no
 * session.
 */
export function createBoardApp(
  { pages, live, queues, maskedQueues, ready, health, clockSkew, metricsToken }: BoardParts,
  signIn: Omit<SignInOptions, 'isPostgresAway'>,
): Express {
  const { log, strangers } = signIn;
  const { loss } = health;
  const missing = () => health.dependencies.lacking().map(({ name }) => name);
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
  // Uses the result of the last check, which is about a quarter of a second old. Frequent probes therefore add no load to the stores.
  addPage('/readyz', (response) => {
    const lackingNames = missing();
    const leaving = isLeaving();
    const ready = lackingNames.length === 0 && !leaving;
    const message = ready ? 'ready' : 'not ready';
    const lost = loss();
    const body = {
      ...{ message, missing: lackingNames, ...(lost && { loss: printedLoss(lost) }) },
      ...(leaving && { leaving }),
      ...readyzProblems(health, lackingNames, {}),
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
  // Bull Board matches its API paths case-insensitively.
  app.use(/^\/queues\/api(?=\/|$)/i, forbidCaching, answerInTime(ready));
  app.use(QUEUES_PATH, refuseChanges, boundPages, (request, response, next) => {
    const { full, accountId } = viewerOf(response);
    // Lanes contain data of every company, so only BOARD_USER may see job contents.
    (full && accountId === undefined ? queues : maskedQueues)(request, response, next);
  });
  app.use((request, response) => {
    sendErrorPage(request, response, new PageError(404, 'Page not found.'));
  });
  // biome-ignore lint/complexity/useMaxParams: Express knows an error handler by its four parameters.
  app.use((error: { status?: number }, _request: Request, response: Response, _next: NextFunction) => {
    const status = error.status ?? 500;
    const isKnown = viewerOf(response) !== undefined;
    if (status >= 500 && isKnown) log.error({ err: error }, 'request to the console failed');
    else if (status >= 500) strangers.line('error', { err: error }, 'request to the console failed');
    // A started response is cut off, so that the client does not take it for complete.
    if (response.headersSent) response.destroy();
    else response.status(status).json({ message: status >= 500 ? 'Internal Server Error' : 'Bad Request' });
  });
  return app;
}

function refuseOtherMethods(_request: Request, response: Response): void {
  response.status(405).set('Allow', 'GET, HEAD').json({ message: 'Method Not Allowed' });
}

/** Serves metrics of this process: memory, event loop delay, dependencies, clock skew and data loss of the queue. */
function showMetrics(
  token: string,
  {
    loss,
    missing,
    clockSkew,
  }: Pick<ProcessHealth, 'loss'> & Pick<BoardParts, 'clockSkew'> & { missing(): string[] },
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

/** Rejects requests with an ambiguous host (400) or a target that is not a path (404). */
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

/**
 * Maximum number of jobs on a Bull Board page. All jobs of a page are in memory at once, and each can have megabytes.
 */
const MAX_JOBS_PER_PAGE = 20;

/** Limits the `jobsPerPage` parameter of Bull Board, which accepts any number. */
function boundPages(request: Request, _response: Response, next: NextFunction): void {
  const [path, sent = ''] = request.url.split(/\?(.*)/s);
  const query = new URLSearchParams(sent);
  if (query.getAll('jobsPerPage').some((number) => !(Number(number) <= MAX_JOBS_PER_PAGE))) {
    query.set('jobsPerPage', String(MAX_JOBS_PER_PAGE));
    request.url = `${path}?${query}`;
  }
  next();
}

/**
 * Rejects compressed request bodies. Browsers send none here, and the body parsers would decompress them, even Brotli.
 */
function refusePacked(request: Request, response: Response, next: NextFunction): void {
  if ((request.headers['content-encoding'] ?? 'identity') === 'identity') next();
  else response.status(415).json({ message: 'Unsupported Media Type' });
}

/** Rejects changes to queues. A changed job would no longer match the data that it mirrors. */
function refuseChanges(request: Request, response: Response, next: NextFunction): void {
  if (SAFE.includes(request.method)) next();
  else response.status(403).json({ message: 'The queues are read-only.' });
}

/** Keeps browsers from storing responses, because jobs contain data of users. */
function forbidCaching(_request: Request, response: Response, next: NextFunction): void {
  response.set('Cache-Control', 'no-store');
  next();
}

/** Responds with 503 if the queue is not connected or does not answer within TIMEOUT_MS. */
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
