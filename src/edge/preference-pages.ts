import type { Express, Request, Response } from 'express';
import { ApiError } from '../errors.ts';
import { newId } from '../ids.ts';
import { messageOf } from '../log.ts';
import { documentOf, type Head } from '../preferences/document.ts';
import { readLink } from '../preferences/link.ts';
import type { Form } from '../preferences/read-forms.ts';
import { RendererBusy } from '../preferences/renderer.ts';
import { type Choice, NotAChoice, objectsOf, readChoice } from '../preferences/submission.ts';
import { TemplateError } from '../preferences/template-error.ts';
import { QueueUnavailable } from '../queue/lanes.ts';
import { readBody } from './body.ts';
import { PREFERENCES } from './link-settings.ts';
import { createLinkOpener, LinkRefused, type Opened } from './open-link.ts';
import { type PageLocals, refuse } from './other-requests.ts';
import { type NoticeName, noticePage, statusOfNotice } from './preference-notices.ts';
import { preferencePolicy } from './preference-policy.ts';
import type { EdgeServices } from './services.ts';
import { isUnavailable } from './to-reply.ts';
import { createTurns } from './turns.ts';

/**
 * Pages in work at once: they share Postgres with the API. Some more wait a moment, since one page takes milliseconds;
 * who would wait for longer is asked to come again.
 */
const TURNS = { atOnce: 16, mostWaiting: 256, patience: 3000 };

/** Bytes of a sent form: 450 groups, each sent twice, take 55,000. */
const MAX_FORM = 131_072;

/** Seconds after which a browser may ask again. */
const RETRY_AFTER = '2';

const FORM = /^application\/x-www-form-urlencoded\s*(?:;|$)/i;

type Answer = Response<unknown, PageLocals>;

/**
 * The page that a link to a preference center opens, and what its form does. The link is all that a visitor
 * has: it names one user and one center, and its signature stands for a session and against forged forms.
 */
export function addPreferencePages(app: Express, services: EdgeServices): void {
  const { resources, log, queue, metrics } = services;
  const { renderer, links, database } = resources;
  const opener = createLinkOpener(database);
  const inTurn = createTurns(TURNS);

  app
    .route(`${PREFERENCES}/:token`)
    .all(...preferencePolicy(links))
    .get((request, response) => answer(response, () => inTurn(() => show(tokenOf(request)))))
    .post((request, response) => answer(response, () => submit(request, response)))
    .all((_request, response) => refuse(response, 'methodNotAllowed', { Allow: 'GET, HEAD, POST' }));

  async function show(token: string): Promise<string> {
    const opened = await open(token);
    const { html } = await renderer.render({ template: opened.center.pageHtml, view: opened.view });
    return documentOf(html, headOf(opened));
  }

  /** Changes the states: once the queue has them on disk, the visitor is told so. */
  async function submit(request: Request, response: Answer): Promise<string> {
    const token = tokenOf(request);
    if (!readLink(token)) throw new LinkRefused(404);
    if (!FORM.test(request.headers['content-type'] ?? '')) throw new ApiError('unsupportedMediaType');
    const body = await readBody(request, { limit: MAX_FORM, reading: services.reading });
    return inTurn(async () => {
      const opened = await open(token);
      const choice = readChoice(
        new URLSearchParams(body.toString('utf8')),
        await formsOf(opened),
        opened.groups,
      );
      const { workspaceId, user } = opened;
      const objects = objectsOf(choice, user, newId);
      const overload = services.overload('queue');
      if (overload) throw new QueueUnavailable(overload);
      if (objects.length > 0) {
        const request_id = String(response.getHeader('X-Request-Id'));
        const accepted_at = new Date().toISOString();
        const bytes = Buffer.byteLength(JSON.stringify(objects));
        await queue.enqueue({ request_id, workspace_id: workspaceId, accepted_at }, objects, bytes);
        metrics.accepted.inc({ operation: 'preference_page' }, objects.length);
      }
      response.locals.known = { workspace_id: workspaceId, accepted: objects.length };
      return confirmation(opened, choice);
    });
  }

  /** A page that cannot be rendered has no boxes to look at; what was sent still counts. */
  async function formsOf({ center, view }: Opened): Promise<Form[]> {
    try {
      return (await renderer.render({ template: center.pageHtml, view })).page.forms;
    } catch (error) {
      if (error instanceof TemplateError) return [];
      throw error;
    }
  }

  /** Shows what was chosen: the store may not have it yet. Whatever is wrong with the page, it was saved. */
  async function confirmation(opened: Opened, { emailGlobal, groups }: Choice): Promise<string> {
    const { center, view } = opened;
    const chosen = {
      ...view,
      ...(emailGlobal && { emailGlobal }),
      groups: { ...view.groups, ...groups },
    };
    try {
      const { html } = await renderer.render({ template: center.confirmationHtml, view: chosen });
      return documentOf(html, headOf(opened));
    } catch (error) {
      if (!(error instanceof TemplateError || error instanceof RendererBusy)) throw error;
      log.warn({ preference_center: center.id, error: error.message }, 'a confirmation could not be shown');
      return noticePage('saved');
    }
  }

  function open(token: string): Promise<Opened> {
    return opener.open(token, links.urlOf(token), Date.now());
  }

  async function answer(response: Answer, make: () => Promise<string>): Promise<void> {
    let html: string;
    try {
      html = await make();
    } catch (error) {
      const name = noticeOf(error);
      response.locals.known = { ...response.locals.known, error: messageOf(error) };
      // What is wrong with a template is its author's affair, and in the line of the request.
      if (name === 'broken' && !(error instanceof TemplateError)) {
        log.error(
          { err: error, request_id: response.getHeader('X-Request-Id') },
          'a page could not be shown',
        );
      }
      if (name === 'busy') response.setHeader('Retry-After', RETRY_AFTER);
      response.status(error instanceof ApiError ? error.status : statusOfNotice(name));
      html = noticePage(name);
    }
    // Node has answered a request that broke off already.
    if (!response.headersSent) response.type('html').send(html);
  }
}

function tokenOf(request: Request): string {
  return request.params.token as string;
}

function headOf({ center }: Opened): Head {
  return { title: center.title, options: center.options as Head['options'] };
}

function noticeOf(error: unknown): NoticeName {
  if (error instanceof LinkRefused) return error.status === 404 ? 'unknown' : 'over';
  if (isUnavailable(error)) return 'busy';
  return error instanceof NotAChoice || error instanceof ApiError ? 'unreadable' : 'broken';
}
