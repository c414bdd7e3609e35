import escapeHtml from 'escape-html';
import type { Express, Request, Response } from 'express';
import { LRUCache } from 'lru-cache';
import { ApiError } from '../errors.ts';
import type { AcceptedObject } from '../jobs/envelope.ts';
import { memoryTokenBuckets } from '../limits/token-buckets.ts';
import type { Resources } from '../operations/operation.ts';
import { now, nowDate } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';
import { type Log, messageOf } from '../platform/log.ts';
import { documentOf, type Form, type Head } from '../preferences/page.ts';
import { RendererBusy } from '../preferences/renderer.ts';
import { PREFERENCES } from '../preferences/settings.ts';
import { type Choice, NotAChoice, objectsOf, readChoice } from '../preferences/submission.ts';
import { TemplateError } from '../preferences/template.ts';
import type { GroupCommit } from '../queue/enqueue.ts';
import { type PageLocals, refuse } from './app.ts';
import { mediaTypeOf, readBody } from './body.ts';
import { type Capacity, createRequestSemaphore } from './load-shedding.ts';
import type { EdgeMetrics } from './metrics.ts';
import { createLinkOpener, LinkRefused, type Opened, preferencePolicy } from './open-link.ts';
import type { Reading } from './reading.ts';
import type { RequestInHand } from './request.ts';
import type { Responses } from './responses.ts';
import { isUnavailable } from './unavailable.ts';

/** Messages shown instead of the page. They tell the visitor what to do, and not the cause. */
const notices = {
  unknown: {
    status: 404,
    title: 'This link does not work',
    text: 'Please open it again from your message. It may have been copied without its end.',
  },
  over: {
    status: 410,
    title: 'This link is no longer valid',
    text: 'Please use the link in our latest message to you.',
  },
  unreadable: {
    status: 400,
    title: 'Your choices could not be read',
    text: 'Nothing has been changed. Please go back, and tell us if it happens again.',
  },
  busy: {
    status: 503,
    title: 'Please try again in a moment',
    text: 'We are busy right now, and nothing has been changed. Reloading this page tries again.',
  },
  broken: {
    status: 500,
    title: 'This page cannot be shown',
    text: 'The mistake is ours, and we have noted it. Please try again later.',
  },
  tooOften: {
    status: 429,
    title: 'Please wait a minute',
    text: 'This form was sent many times in a short time. Your last choices have not been saved. Please send it again in a minute.',
  },
  saved: { status: 200, title: 'Saved', text: 'Your choices have been saved.' },
} as const;

type NoticeName = keyof typeof notices;

function statusOfNotice(name: NoticeName): number {
  return notices[name].status;
}

/** Renders a notice as a whole page. */
function noticePage(name: NoticeName): string {
  const { title, text } = notices[name];
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)}</title>
<style>
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; color: #1d2733; background: #eef2f5; margin: 0; padding: 0 1rem; }
main { max-width: 30rem; margin: 3rem auto; padding: 2rem clamp(1.25rem, 6vw, 2.5rem); background: #fff;
  border-radius: 12px; }
h1 { margin: 0; font-size: 1.5rem; line-height: 1.3; }
p { margin: 1rem 0 0; }
@media (prefers-color-scheme: dark) {
  body { color: #e4eaf0; background: #10161c; }
  main { background: #1a232c; }
}
</style>
</head>
<body>
<main>
<h1>${escapeHtml(title)}</h1>
<p>${escapeHtml(text)}</p>
</main>
</body>
</html>
`;
}

/**
 * Limits of concurrently rendered pages, each with a signed link. Each workspace has a limit of its own, so that slow
 * templates delay only their own pages. More pages wait for a moment, because one page takes milliseconds. Visitors
 * who would wait longer are asked to try again.
 */
const PAGES = {
  maxRunning: 48,
  maxRunningPerOwner: 12,
  maxWaiting: 512,
  maxWaitingPerOwner: 256,
  patience: 3000,
};

/** Maximum number of forms from the links of one user, in each web process. Legitimate visitors send fewer. */
const FORMS = { requests: 20, windowSeconds: 60 };

/** Maximum number of users whose forms are counted. A user who was dropped starts with a full bucket. */
const MAX_COUNTED_USERS = 10_000;

/** Maximum bytes of a sent form: 450 groups, each sent twice, take 55,000. */
const MAX_FORM = 131_072;

/** Seconds after which a browser may try again. */
const RETRY_AFTER = '2';

const FORM = 'application/x-www-form-urlencoded';

type Answer = Response<unknown, PageLocals>;

/** Adds the choices of visitors to the queue. */
export class ChoiceQueue {
  readonly #queue: Pick<GroupCommit, 'enqueue'>;
  readonly #capacity: Capacity;
  readonly #accepted: EdgeMetrics['accepted'];

  /** @param accepted counts the objects */
  constructor(queue: Pick<GroupCommit, 'enqueue'>, capacity: Capacity, accepted: EdgeMetrics['accepted']) {
    this.#queue = queue;
    this.#capacity = capacity;
    this.#accepted = accepted;
  }

  /**
   * Resolves when the objects are on disk.
   * @throws {QueueUnavailable} during overload, even without objects
   */
  async add(workspaceId: string, requestId: string, objects: AcceptedObject[]): Promise<void> {
    const refusal = this.#capacity.refusal('queue', workspaceId);
    if (refusal) throw refusal;
    if (objects.length === 0) return;
    const request = {
      request_id: requestId,
      workspace_id: workspaceId,
      accepted_at: nowDate().toISOString(),
    };
    const bytes = Buffer.byteLength(JSON.stringify(objects));
    await this.#queue.enqueue(request, objects, { bytes });
    this.#accepted.inc({ operation: 'preference_page' }, objects.length);
  }
}

interface PreferenceParts {
  resources: Pick<Resources, 'database' | 'renderer' | 'links'>;
  choices: ChoiceQueue;
  /** Admits the bodies of forms. */
  reading: Reading;
  /** Bounds the memory of pages that browsers do not read. */
  responses: Pick<Responses, 'requireRoom' | 'end'>;
  log: Log;
}

/**
 * Adds the pages that a link to a preference center opens, and handles their forms. The link is the only credential
 * of a visitor: it identifies one user and one center, and its signature replaces a session and protects against
 * forged forms.
 */
export function addPreferencePages(
  app: Express,
  { resources, choices, reading, responses, log }: PreferenceParts,
): void {
  const { renderer, links, database } = resources;
  const opener = createLinkOpener(database);
  const semaphore = createRequestSemaphore(PAGES);
  const forms = memoryTokenBuckets(now, new LRUCache({ max: MAX_COUNTED_USERS }));

  app
    .route(`${PREFERENCES}/:token`)
    .all(...preferencePolicy(links))
    .get((request, response) => answer(response, (isOf) => show(tokenOf(request), isOf)))
    .post((request, response) => answer(response, (isOf) => submit(request, response, isOf)))
    .all((_request, response) => refuse(response, 'methodNotAllowed', { Allow: 'GET, HEAD, POST' }));

  async function show(token: string, isOf: (workspaceId: string) => void): Promise<string> {
    const link = await opener.verify(token, now());
    isOf(link.workspaceId);
    return semaphore.use(link.workspaceId, async () => {
      const opened = await opener.open(link, links.urlOf(token));
      const { center, view } = opened;
      const { html } = await renderer.render(link.workspaceId, { template: center.pageHtml, view });
      return documentOf(html, headOf(opened));
    });
  }

  /** Changes the states. The visitor gets the confirmation once the queue has the changes on disk. */
  async function submit(
    request: Request,
    response: Answer,
    isOf: (workspaceId: string) => void,
  ): Promise<string> {
    const token = tokenOf(request);
    // Verified before the body is read, so that requests without a valid link use no memory.
    const link = await opener.verify(token, now());
    isOf(link.workspaceId);
    (request as RequestInHand).arriving?.know();
    const { granted, untilOne } = await forms.take(`${link.workspaceId}:${link.profileId}`, FORMS, 1);
    if (granted === 0)
      throw new ApiError('rateLimited', {
        headers: { 'Retry-After': String(Math.ceil(untilOne / 1000)) },
      });
    if (mediaTypeOf(request.headers['content-type'] ?? '') !== FORM)
      throw new ApiError('unsupportedMediaType');
    const body = await readBody(request as RequestInHand, { limit: MAX_FORM, reading });
    return semaphore.use(link.workspaceId, async () => {
      const opened = await opener.open(link, links.urlOf(token));
      const choice = readChoice(
        new URLSearchParams(body.toString('utf8')),
        await formsOf(opened),
        opened.groups,
      );
      const { workspaceId, user } = opened;
      const objects = objectsOf(choice, user, newId);
      await choices.add(workspaceId, String(response.getHeader('X-Request-Id')), objects);
      response.locals.logFields = { workspace_id: workspaceId, accepted: objects.length };
      return confirmation(opened, choice);
    });
  }

  /**
   * Reads the forms of the page. If it cannot be rendered, its checkboxes are unknown, but the submitted values still
   * count.
   */
  async function formsOf({ workspaceId, center, view }: Opened): Promise<Form[]> {
    try {
      return (await renderer.render(workspaceId, { template: center.pageHtml, view })).page.forms;
    } catch (error) {
      if (error instanceof TemplateError) return [];
      throw error;
    }
  }

  /**
   * Shows the chosen values, because the store may not have them yet. They are saved even if the page cannot be
   * rendered.
   */
  async function confirmation(opened: Opened, { emailGlobal, groups }: Choice): Promise<string> {
    const { workspaceId, center, view } = opened;
    const chosen = {
      ...view,
      ...(emailGlobal && { emailGlobal }),
      groups: { ...view.groups, ...groups },
    };
    try {
      const { html } = await renderer.render(workspaceId, {
        template: center.confirmationHtml,
        view: chosen,
      });
      return documentOf(html, headOf(opened));
    } catch (error) {
      if (!(error instanceof TemplateError || error instanceof RendererBusy)) throw error;
      log.warn(
        { preference_center: center.id, error: error.message },
        'confirmation page of a preference center failed; default page shown',
      );
      return noticePage('saved');
    }
  }

  async function answer(
    response: Answer,
    make: (isOf: (workspaceId: string) => void) => Promise<string>,
  ): Promise<void> {
    let html: string;
    let owner: string | undefined;
    try {
      html = await make((workspaceId) => {
        responses.requireRoom(workspaceId);
        owner = workspaceId;
      });
    } catch (error) {
      const name = noticeOf(error);
      response.locals.logFields = { ...response.locals.logFields, error: messageOf(error) };
      // An error in a template concerns its author, and is in the log line of the request.
      if (name === 'broken' && !(error instanceof TemplateError)) {
        log.error(
          { err: error, request_id: response.getHeader('X-Request-Id') },
          'page of a preference center failed',
        );
      }
      if (name === 'busy') response.setHeader('Retry-After', RETRY_AFTER);
      if (error instanceof ApiError) response.set(error.headers);
      response.status(error instanceof ApiError ? error.status : statusOfNotice(name));
      html = noticePage(name);
    }
    // Node has answered an aborted request already.
    if (response.headersSent) return;
    const body = Buffer.from(html);
    response.type('html').set('Content-Length', String(body.length));
    responses.end(response, body, owner);
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
  if (error instanceof ApiError && error.status === 429) return 'tooOften';
  return error instanceof NotAChoice || error instanceof ApiError ? 'unreadable' : 'broken';
}
