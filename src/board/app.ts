import express, { type Express, type NextFunction, type Request, type Response } from 'express';
import helmet from 'helmet';
import type { Log } from '../log.ts';
import { isSameOrigin } from './same-origin.ts';
import { createSignIn, type SignInOptions } from './sign-in.ts';

/** The queue answers within a fraction of this, or not at all: BullMQ waits without end for a connection. */
const TIMEOUT_MS = 10_000;

/**
 * Nothing comes from anywhere but this server, not even the fonts that Bull Board asks the web for; its
 * components set styles on elements. No rule asks for https: the dashboard is served on loopback.
 */
const securityHeaders = helmet({
  contentSecurityPolicy: {
    useDefaults: false,
    directives: {
      defaultSrc: ["'self'"],
      styleSrc: ["'self'", "'unsafe-inline'"],
      imgSrc: ["'self'", 'data:'],
      objectSrc: ["'none'"],
      baseUri: ["'self'"],
      formAction: ["'self'"],
      frameAncestors: ["'none'"],
    },
  },
  strictTransportSecurity: false,
  // With no-referrer, a browser would send its forms without the origin that they are checked for.
  referrerPolicy: { policy: 'same-origin' },
});

export interface BoardAppOptions extends SignInOptions {
  /** Bull Board, and the one for people who may only look. */
  board: Express;
  readOnlyBoard: Express;
  /** Whether the queue is connected. */
  ready(): boolean;
}

/** The dashboard's stages, in order: nothing but /healthz and /sign-in is reached without a session. */
export function createBoardApp({ board, readOnlyBoard, ready, ...signIn }: BoardAppOptions): Express {
  const { log } = signIn;
  const app = express();
  app.disable('x-powered-by');
  app
    .route('/healthz')
    .get((_request, response) => {
      response.json({ message: 'alive' });
    })
    .all((_request, response) => {
      response.status(405).set('Allow', 'GET, HEAD').json({ message: 'Method Not Allowed' });
    });
  app.use(securityHeaders);
  app.use(refuseOtherOrigins);
  app.use(refusePacked);
  app.use(createSignIn(signIn));
  app.use(refuseChangesByReaders);
  app.use('/api', forbidCaching, answerInTime(ready));
  app.use(logActions(log));
  app.use((request, response, next) => {
    (response.locals.readOnly ? readOnlyBoard : board)(request, response, next);
  });
  app.use((_request, response) => {
    response.status(404).json({ message: 'Not Found' });
  });
  app.use((error: { status?: number }, _request: Request, response: Response, _next: NextFunction) => {
    const status = error.status ?? 500;
    if (status >= 500) log.error({ err: error }, 'the dashboard could not answer');
    if (!response.headersSent)
      response.status(status).json({ message: status >= 500 ? 'Internal Server Error' : 'Bad Request' });
  });
  return app;
}

function refuseOtherOrigins(request: Request, response: Response, next: NextFunction): void {
  if (isSameOrigin(request)) next();
  else response.status(403).json({ message: 'Only the dashboard itself may send this.' });
}

/** Browsers pack nothing that they send here; the readers of bodies behind this would unpack it, also with Brotli. */
function refusePacked(request: Request, response: Response, next: NextFunction): void {
  if ((request.headers['content-encoding'] ?? 'identity') === 'identity') next();
  else response.status(415).json({ message: 'Unsupported Media Type' });
}

/** What accounts may do beside looking follows their permissions. */
function refuseChangesByReaders(request: Request, response: Response, next: NextFunction): void {
  if (!response.locals.readOnly || request.method === 'GET' || request.method === 'HEAD') next();
  else response.status(403).json({ message: 'Your account may look, and change nothing.' });
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

/** One line per action; pages that look are not logged, as an open one asks every few seconds. */
function logActions(log: Log) {
  return (request: Request, response: Response, next: NextFunction) => {
    if (request.method !== 'GET') {
      const { method, path } = request;
      response.on('finish', () =>
        log.info({ method, path, status: response.statusCode }, 'dashboard action'),
      );
    }
    next();
  };
}
