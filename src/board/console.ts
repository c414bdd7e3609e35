import type { NextFunction, Request, Response, Router } from 'express';
import express from 'express';
import type { Lacking, Readings } from '../checks/readings.ts';
import type { Config } from '../platform/config.ts';
import { type Html, html } from '../platform/html.ts';
import type { Log } from '../platform/log.ts';
import type { Renderer } from '../preferences/renderer.ts';
import type { QueueConnection } from '../queue/connection.ts';
import type { LaneDepths } from '../queue/depth.ts';
import type { GroupCommit } from '../queue/enqueue.ts';
import { type LaneProducer, type LayoutSettings, QueueUnavailable } from '../queue/lanes.ts';
import { describeLoss } from '../queue/loss.ts';
import type { createWaitingSearch } from '../queue/waiting-search.ts';
import { isRight, type Permit } from '../resources/rights.ts';
import type { Actor } from '../store/audit.ts';
import { type Database, storable } from '../store/database.ts';
import { isPostgresAway } from '../store/error-cause.ts';
import type { QueueLoss } from '../store/installation.ts';
import { type Right, rights, type Viewer, type Workspace } from './access.ts';
import { download, type FileReply } from './files.ts';
import type { Fleet } from './fleet.ts';
import { noticeOf, shell } from './layout.ts';
import { createMinuteLimit } from './lockouts.ts';
import { clientOf, type OperatorSessions } from './sessions.ts';

/** What pages are made from. */
export interface ConsoleServices {
  database: Database;
  connection: QueueConnection;
  producer: LaneProducer;
  config: LayoutSettings & Config;
  /** Sessions of BOARD_USER. */
  operators: OperatorSessions;
  /** What the queue has lost and nobody has confirmed. */
  loss(): QueueLoss | undefined;
  /** What the process cannot do without and does not have. */
  lacking(): Lacking[];
  /** Why Postgres refused the last heartbeat; absent: nobody looks. */
  rejectsWrites?(): Readings['rejectsWrites'];
  log: Log;
}

/** What pages use beside the stores: what waits in the lanes, and a way into them; the fleet; and preference centers. */
export interface PageServices extends ConsoleServices {
  waiting: ReturnType<typeof createWaitingSearch>;
  queue: GroupCommit;
  depths: LaneDepths;
  fleet: Fleet;
  renderer: Renderer;
}

/** A request of somebody who has the page's right somewhere. */
export interface Visit<Services> {
  services: Services;
  viewer: Viewer;
  /** The viewer, for the audit. */
  actor: Actor;
  /** BOARD_URL, else that of the page that has sent the form, as https://host; empty where the browser does not say. */
  origin: string;
  /** Those in which the person has the right, by name: a thousand at most. */
  workspaces: Workspace[];
  /** One in which the person has the page's right, by its id or name, among a thousand or not. */
  findWorkspace(idOrName: string): Promise<Workspace | undefined>;
  params: Record<string, string>;
  /** Of the address; what is missing, or came twice, is empty. */
  query(name: string): string;
  /** Of the form; what is missing is empty. */
  field(name: string): string;
  /** Every value of the form's field. */
  fields(name: string): string[];
}

/** What a visit ends with: a page, another page's address, a file, or a document of somebody else to be shown in a frame. */
export type Reply =
  | { title: string; body: Html; status?: number; refresh?: number; notice?: string }
  | { to: string }
  | { framed: string }
  | FileReply;

/** One route of the console. */
export interface Page<Services = ConsoleServices> {
  method: 'get' | 'post';
  path: string;
  /** What a person needs, of a right in one workspace at least. */
  right: Permit;
  /** Bytes that its form may have, where that is more than usual. */
  mostBytes?: number;
  handle(visit: Visit<Services>): Promise<Reply>;
}

/** What can be said to whoever asked: there is no such thing, or what was sent will not do. */
export class Sorry extends Error {
  override name = 'Sorry';
  readonly status: number;

  constructor(status: 400 | 403 | 404 | 409 | 429 | 503, message: string) {
    super(message);
    this.status = status;
  }
}

/**
 * What people wrote for their users is hostile here: it runs nothing, sends nothing, loads nothing from anywhere, and
 * stands in an origin of its own, whoever opens it.
 */
const FRAMED =
  "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'self'; sandbox";

/** Ids of a page of a list, and the few fields beside them. */
const FORM_BYTES = 65_536;

/** Values of a form: the ids of a page. */
const MOST_FIELDS = 600;

/** Actions of one person within a minute: each leaves an entry in the audit, or several, which is kept for a year. */
const MOST_ACTIONS = 120;

/** Those that change something, and those that hand something out. */
const isAction = ({ method, path }: Page<never>) => method === 'post' || /\.csv$|\/export$/.test(path);

/** The pages, each behind its right. */
export function createConsole<Services extends Pick<ConsoleServices, 'config' | 'loss' | 'log'>>(
  pages: Page<Services>[],
  services: Services,
): Router {
  const router = express.Router({ caseSensitive: true, strict: true });
  const actions = createMinuteLimit(MOST_ACTIONS);
  const limitActions = (_request: Request, response: Response, next: NextFunction) => {
    const who = viewerOf(response).accountId ?? '';
    const seconds = actions.secondsLeft(who);
    if (seconds > 0) {
      response.set('Retry-After', String(seconds));
      throw new Sorry(429, `You can submit ${MOST_ACTIONS} actions per minute. Try again in ${seconds} s.`);
    }
    actions.count(who);
    next();
  };
  for (const page of pages) {
    if (isAction(page)) router[page.method](page.path, limitActions);
    const limit = page.mostBytes ?? FORM_BYTES;
    const readForm = express.urlencoded({ extended: false, limit, parameterLimit: MOST_FIELDS });
    const answer = (request: Request, response: Response) => serve(page, { request, response, services });
    if (page.method === 'get') router.get(page.path, answer);
    else router.post(page.path, logAction(services.log), readForm, answer);
  }
  // biome-ignore lint/complexity/useMaxParams: Express knows an error handler by its four parameters.
  router.use((error: unknown, request: Request, response: Response, next: NextFunction) => {
    const found = sorryOf(error);
    if (!found || response.headersSent) return next(error);
    if (found.status >= 500) services.log.warn({ err: error }, 'request to the console failed');
    sendSorry(request, response, found);
  });
  return router;
}

/** One line per action, however it ends; who looks leaves none, as an open page asks every few seconds. */
function logAction(log: Log) {
  return (request: Request, response: Response, next: NextFunction) => {
    const { path } = request;
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

async function serve<Services extends Pick<ConsoleServices, 'config' | 'loss' | 'log'>>(
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
    services.log.info({ path: request.path, account_id: viewer.accountId }, 'console download');
    if (!(await download(response, reply)))
      throw new Sorry(503, 'Too many downloads are running. Try again in a few seconds.');
  } else {
    const loss = services.loss();
    const { title, body, status = 200, refresh } = reply;
    const alarm = loss && describeLoss(loss);
    const notice = reply.notice ?? noticeOf(query('done'));
    response.status(status).send(shell({ title, body, path: request.path, viewer, notice, alarm, refresh }));
  }
}

/** @returns the workspaces in which the viewer has the right. @throws {Sorry} for whoever lacks it */
function enter(right: Page['right'], viewer: Viewer): Workspace[] {
  const isOperator = viewer.accountId === undefined;
  if (right === 'anyone' || (right === 'operator' && isOperator)) return [];
  if (right === 'company' && viewer.full) return [];
  if (right === 'operator') throw new Sorry(403, 'Only BOARD_USER can do this.');
  if (right === 'company')
    throw new Sorry(403, "Your account needs the company permission 'admin' or 'manage_company_settings'.");
  const workspaces = viewer.workspacesWith(right);
  if (workspaces.length === 0) throw viewer.full ? noWorkspace() : lacking(right);
  return workspaces;
}

/** That of a page has been held against the host that was asked, before anything else. */
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

export function lacking(right: Right): Sorry {
  const names = rights[right].map((name) => `'${name}'`).join(' or ');
  return new Sorry(403, `Your account needs the permission ${names} in a workspace.`);
}

/** @throws {Sorry} for whoever lacks the permit, of a right in the workspace */
export function requirePermit(
  { viewer }: Pick<Visit<unknown>, 'viewer'>,
  permit: Permit,
  workspaceId: string,
): void {
  if (!isRight(permit)) enter(permit, viewer);
  else if (!viewer.can(permit, workspaceId)) throw lacking(permit);
}

/** For who has every right there is. */
const noWorkspace = () =>
  new Sorry(
    503,
    'No workspace found: Postgres does not answer, or no workspace exists yet (penstock workspaces create).',
  );

/** What an error means to whoever asked; undefined: nothing that could be told. */
function sorryOf(error: unknown): Sorry | undefined {
  if (error instanceof Sorry) return error;
  if (error instanceof QueueUnavailable)
    return new Sorry(503, 'The queue is not reachable. Your change was not saved. Try again.');
  const { type } = error as { type?: string };
  if (type === 'entity.too.large')
    return new Sorry(400, 'The form is too large. Send fewer or shorter values.');
  if (type === 'parameters.too.many') return new Sorry(400, `A form can have at most ${MOST_FIELDS} values.`);
  if (isPostgresAway(error)) return new Sorry(503, 'Postgres does not answer. Try again later.');
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

/** A page that says what is wrong; to who takes no pages, JSON. */
export function sendSorry(request: Request, response: Response, { status, message }: Sorry): void {
  response.status(status).set('Cache-Control', 'no-store');
  if (request.accepts(['json', 'html']) !== 'html') {
    response.json({ message });
    return;
  }
  const body = html`<h1>${titles[status] ?? 'Error'}</h1><p class="lead">${message}</p><p><a href="/">To the first page</a></p>`;
  const viewer = response.locals.viewer as Viewer | undefined;
  response.send(shell({ title: titles[status] ?? 'Error', body, path: request.path, viewer }));
}

/** One of the visit's workspaces by its id or name; undefined where none is named. @throws {Sorry} for any other */
export async function chosenWorkspace({
  findWorkspace,
  query,
}: Pick<Visit<unknown>, 'findWorkspace' | 'query'>): Promise<Workspace | undefined> {
  const id = query('workspace');
  if (id === '') return undefined;
  const found = await findWorkspace(id);
  if (!found) throw new Sorry(404, 'Workspace not found, or your account has no permission in it.');
  return found;
}
