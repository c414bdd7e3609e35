import type { NextFunction, Request, Response, Router } from 'express';
import express from 'express';
import type { Problem } from '../checks/check.ts';
import type { Lacking, Readings } from '../checks/readings.ts';
import type { QueuedOperation } from '../operations/operation.ts';
import type { Config } from '../platform/config.ts';
import { type Html, html } from '../platform/html.ts';
import type { Log } from '../platform/log.ts';
import type { Renderer } from '../preferences/renderer.ts';
import type { QueueConnection } from '../queue/connection.ts';
import type { LaneDepths } from '../queue/depth.ts';
import type { Effects } from '../queue/effects.ts';
import type { GroupCommit } from '../queue/enqueue.ts';
import { type LaneProducer, type LayoutSettings, QueueUnavailable } from '../queue/lanes.ts';
import { describeLoss } from '../queue/loss.ts';
import type { createWaitingSearch } from '../queue/waiting-search.ts';
import { isRight, type PagePermit, type Permit } from '../resources/rights.ts';
import type { Actor } from '../store/audit.ts';
import { type Database, storable } from '../store/database.ts';
import { isPostgresUnavailable } from '../store/error-cause.ts';
import type { QueueLoss } from '../store/installation.ts';
import { isPermitted, rights, type Viewer, type Workspace } from './access.ts';
import type { Badges } from './badges.ts';
import { download, type FileReply } from './files.ts';
import type { Fleet } from './fleet.ts';
import { noticeOf, shell } from './layout.ts';
import { createMinuteLimit } from './lockouts.ts';
import { clientOf, type OperatorSessions } from './sessions.ts';
import { formPathOf } from './target.ts';

/** Services that every console page can use. */
export interface ConsoleServices {
  database: Database;
  connection: QueueConnection;
  producer: LaneProducer;
  config: LayoutSettings & Config;
  /** Sessions of BOARD_USER. */
  operators: OperatorSessions;
  /** The data loss that the queue reported and no operator has confirmed yet. */
  loss(): QueueLoss | undefined;
  /** Dependencies that this process needs and currently cannot use. */
  lacking(): Lacking[];
  /** The reason why Postgres rejected the last heartbeat; absent if the process sends no heartbeats. */
  rejectsWrites?(): Readings['rejectsWrites'];
  log: Log;
}

/**
 * Services of the pages: the stores, a search in the lanes, an enqueue with its effects, the fleet and the preference
 * center renderer.
 */
export interface PageServices extends ConsoleServices {
  waiting: ReturnType<typeof createWaitingSearch>;
  queue: GroupCommit;
  effects: Effects;
  depths: LaneDepths;
  fleet: Fleet;
  /** Numbers next to the menu that the viewer may see. */
  badges: Badges;
  renderer: Renderer;
  /** Operation with which the page of a user deletes the user. */
  operations: { remove: QueuedOperation };
}

/** A request of a signed-in user who has the page's right in at least one workspace. */
export interface Visit<Services> {
  services: Services;
  viewer: Viewer;
  /** The viewer as recorded in audit entries. */
  actor: Actor;
  /**
   * BOARD_URL if set, otherwise the request's Origin header, for example https://host. Empty if the browser sends none.
   */
  origin: string;
  /** Up to 1,000 workspaces in which the viewer has the page's right, sorted by name. */
  workspaces: Workspace[];
  /** Finds a workspace by id or name in which the viewer has the page's right, even if it is not in `workspaces`. */
  findWorkspace(idOrName: string): Promise<Workspace | undefined>;
  params: Record<string, string>;
  /** Returns a query parameter, trimmed; empty if it is missing or repeated. */
  query(name: string): string;
  /** Returns the first value of a form field; empty if the field is missing. */
  field(name: string): string;
  /** Returns all values of a form field. */
  fields(name: string): string[];
}

/**
 * A page, a redirect to another page, untrusted HTML for a sandboxed frame, or a file. A `notice` replaces the notice of the
 * query, also if it is undefined.
 */
export type Reply =
  | {
      title: string;
      body: Html;
      status?: number;
      refresh?: number;
      notice?: string | undefined;
      /** Problems that the page lists, so that the menu shows their number. */
      problems?: readonly Problem[];
    }
  | { to: string }
  | { framed: string }
  | FileReply;

/** One route of the console. */
export interface Page<Services = ConsoleServices> {
  method: 'get' | 'post';
  path: string;
  /** The permit that a request needs. A workspace right is enough in one workspace. */
  right: PagePermit;
  /** Maximum size of the form in bytes, if it differs from FORM_BYTES. */
  maxBytes?: number;
  handle(visit: Visit<Services>): Promise<Reply>;
}

/** An error that the console shows to the user as a page or as JSON, with its HTTP status. */
export class PageError extends Error {
  override name = 'PageError';
  readonly status: number;

  constructor(status: 400 | 403 | 404 | 409 | 429 | 503, message: string) {
    super(message);
    this.status = status;
  }
}

/**
 * Content security policy for untrusted HTML, for example a preference center that a customer wrote. The HTML runs no
 * scripts, sends no forms, loads nothing from the network and has an origin of its own, even if it is opened directly.
 */
const FRAMED =
  "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'self'; sandbox";

/** Maximum size of a form in bytes: the ids of a list page and a few other fields. */
export const FORM_BYTES = 65_536;

/** Maximum number of values in a form: the ids of a list page. */
const MAX_FIELDS = 600;

/** Actions per user and minute. Each action adds audit entries, which are kept for a year. */
const MAX_ACTIONS = 120;

/** Whether the page changes or exports data. */
const isAction = ({ method, path }: Page<never>) => method === 'post' || /\.csv$|\/export$/.test(path);

/** Services for the frame of each page. */
type ShellServices = Pick<ConsoleServices, 'config' | 'loss' | 'log'> & Partial<Pick<PageServices, 'badges'>>;

/** Creates the router of all pages, each protected by its right. */
export function createConsole<Services extends ShellServices>(
  pages: Page<Services>[],
  services: Services,
): Router {
  const router = express.Router({ caseSensitive: true, strict: true });
  const actions = createMinuteLimit(MAX_ACTIONS);
  const limitActions = (_request: Request, response: Response, next: NextFunction) => {
    const who = viewerOf(response).accountId ?? '';
    const seconds = actions.secondsLeft(who);
    if (seconds > 0) {
      response.set('Retry-After', String(seconds));
      throw new PageError(
        429,
        `You can submit ${MAX_ACTIONS} actions per minute. Try again in ${seconds} s.`,
      );
    }
    actions.count(who);
    next();
  };
  for (const page of pages) {
    if (isAction(page)) router[page.method](page.path, limitActions);
    const limit = page.maxBytes ?? FORM_BYTES;
    const readForm = express.urlencoded({ extended: false, limit, parameterLimit: MAX_FIELDS });
    const answer = (request: Request, response: Response) => serve(page, { request, response, services });
    if (page.method === 'get') router.get(page.path, answer);
    else router.post(page.path, logAction(services.log, page.path), readForm, answer);
  }
  // biome-ignore lint/complexity/useMaxParams: Express knows an error handler by its four parameters.
  router.use((error: unknown, request: Request, response: Response, next: NextFunction) => {
    const pageError = sorryOf(error);
    if (!pageError || response.headersSent) return next(error);
    if (pageError.status >= 500)
      services.log.warn({ err: error }, 'request to the console was answered with 503');
    sendErrorPage(request, response, pageError);
  });
  return router;
}

/**
 * Logs each action with its status and the pattern of its path: the path itself can contain an external id. Page views are
 * not logged, because an open page reloads every few seconds.
 */
function logAction(log: Log, path: string) {
  return (_: Request, response: Response, next: NextFunction) => {
    const { accountId } = viewerOf(response);
    response.on('finish', () =>
      log.info({ path, account_id: accountId, status: response.statusCode }, 'console action'),
    );
    next();
  };
}

interface Served<Services> {
  request: Request;
  response: Response;
  services: Services;
}

async function serve<Services extends ShellServices>(
  page: Page<Services>,
  { request, response, services }: Served<Services>,
): Promise<void> {
  const viewer = viewerOf(response);
  const workspaces = enter(page.right, viewer);
  const form = (request.body ?? {}) as Record<string, string | string[]>;
  // Postgres stores no U+0000 and no lone surrogates: a statement with one of them fails.
  const fields = (name: string) => (Object.hasOwn(form, name) ? [form[name]!].flat().map(storable) : []);
  const query = (name: string) => {
    const given = request.query[name];
    return typeof given === 'string' ? storable(given.trim()) : '';
  };
  const params = Object.fromEntries(
    Object.entries(request.params).map(([name, value]) => [name, storable(value)]),
  );
  const field = (name: string) => fields(name)[0] ?? '';
  const actor = actorOf(viewer, request);
  const { right } = page;
  const findWorkspace = async (idOrName: string) =>
    isRight(right) ? viewer.find(right, idOrName) : undefined;
  const visit = { services, viewer, actor, origin: originOf(request, services), workspaces, findWorkspace };
  const reply = await page.handle({ ...visit, params, query, field, fields });
  response.set('Cache-Control', 'no-store');
  if ('to' in reply) response.redirect(303, reply.to);
  else if ('framed' in reply) response.set('Content-Security-Policy', FRAMED).type('html').send(reply.framed);
  else if ('file' in reply) {
    services.log.info({ path: page.path, account_id: viewer.accountId }, 'console download');
    if (!(await download(response, reply)))
      throw new PageError(503, 'Too many downloads are running. Try again in a few seconds.');
  } else {
    const loss = services.loss();
    const { title, body, status = 200, refresh } = reply;
    const alarm = loss && describeLoss(loss);
    const notice = 'notice' in reply ? reply.notice : noticeOf(query('done'));
    const badges = await services.badges?.(viewer, reply.problems);
    response
      .status(status)
      .send(shell({ title, body, path: request.path, viewer, badges, notice, alarm, refresh }));
  }
}

/**
 * Checks the page's right.
 * @returns the workspaces in which the viewer has the right
 * @throws {PageError} if the viewer lacks it
 */
function enter(right: Page['right'], viewer: Viewer): Workspace[] {
  if (!isPermitted(viewer, right)) throw isRight(right) && viewer.full ? noWorkspace() : lacking(right);
  return isRight(right) ? viewer.workspacesWith(right) : [];
}

/** Returns the console's origin. A form's Origin header has already been checked against the request's host. */
function originOf(
  { headers: { origin = '' } }: Request,
  { config }: Pick<ConsoleServices, 'config'>,
): string {
  if (config.BOARD_URL) return config.BOARD_URL.replace(/\/$/, '');
  return /^https?:\/\/[^\s/]+$/.test(origin) ? origin : '';
}

function actorOf({ accountId, user }: Viewer, request: Request): Actor {
  const { address } = clientOf(request);
  return {
    kind: accountId === undefined ? 'operator' : 'account',
    id: accountId,
    name: user,
    via: 'console',
    address,
  };
}

export const viewerOf = (response: Response) => response.locals.viewer as Viewer;

export function lacking(right: PagePermit): PageError {
  if (!isRight(right))
    return new PageError(
      403,
      right === 'company'
        ? "Your account needs the company permission 'admin' or 'manage_company_settings'."
        : 'Only BOARD_USER can do this.',
    );
  const names = rights[right].map((name) => `'${name}'`).join(' or ');
  return new PageError(403, `Your account needs the permission ${names} in a workspace.`);
}

/** @throws {PageError} if the viewer lacks the permit in the given workspace; the message names the first missing right */
export function requirePermit(
  { viewer }: Pick<Visit<unknown>, 'viewer'>,
  permit: Permit,
  workspaceId: string,
): void {
  const missing = [permit].flat().find((one) => !isPermitted(viewer, one, workspaceId));
  if (missing !== undefined) throw lacking(missing);
}

/** Error for a viewer who has every right but sees no workspace. */
const noWorkspace = () =>
  new PageError(
    503,
    'No workspace found: Postgres does not answer, or no workspace exists yet (penstock workspaces create).',
  );

/** Maps an error to one that the user may see; undefined if the error must not be shown. */
function sorryOf(error: unknown): PageError | undefined {
  if (error instanceof PageError) return error;
  if (error instanceof QueueUnavailable)
    return new PageError(503, 'The queue is not reachable. Your change was not saved. Try again.');
  const { type } = error as { type?: string };
  if (type === 'entity.too.large')
    return new PageError(400, 'The form is too large. Send fewer or shorter values.');
  if (type === 'parameters.too.many')
    return new PageError(400, `A form can have at most ${MAX_FIELDS} values.`);
  if (isPostgresUnavailable(error)) return new PageError(503, 'Postgres does not answer. Try again later.');
  return undefined;
}

const titles: Record<number, string> = {
  400: 'Invalid request',
  403: 'Not allowed',
  404: 'Not found',
  409: 'Conflict',
  429: 'Too many requests',
  503: 'Not available',
};

/** Sends an error page, or JSON if the client does not accept HTML. */
export function sendErrorPage(request: Request, response: Response, { status, message }: PageError): void {
  response.status(status).set('Cache-Control', 'no-store');
  if (request.accepts(['json', 'html']) !== 'html') {
    response.json({ message });
    return;
  }
  const form = formPathOf(request);
  const body = html`<h1>${titles[status] ?? 'Error'}</h1><p class="lead">${message}</p><p><a href="${form ?? '/home'}">${form === undefined ? 'Back to the start page' : 'Back to the form'}</a></p>`;
  const viewer = response.locals.viewer as Viewer | undefined;
  response.send(shell({ title: titles[status] ?? 'Error', body, path: request.path, viewer }));
}

/**
 * Returns the workspace in the query (id or name), or undefined if the query names none.
 * @throws {PageError} if the viewer has no permission in it
 */
export async function chosenWorkspace({
  findWorkspace,
  query,
}: Pick<Visit<unknown>, 'findWorkspace' | 'query'>): Promise<Workspace | undefined> {
  const id = query('workspace');
  if (id === '') return undefined;
  const workspace = await findWorkspace(id);
  if (!workspace) throw new PageError(404, 'Workspace not found, or your account has no permission in it.');
  return workspace;
}
