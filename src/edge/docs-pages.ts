import { basename, dirname } from 'node:path';
import type { Express, Response } from 'express';
import helmet from 'helmet';
import type { Site } from '../docs/site.ts';
import { openOnce } from '../platform/concurrency.ts';
import { addPage, refuse } from './app.ts';
import type { OpenApiDocument } from './openapi.ts';

/** Nothing comes from anywhere but this server. No rule asks for https: TLS is the proxy's affair. */
const securityHeaders = helmet({
  contentSecurityPolicy: {
    useDefaults: false,
    directives: {
      defaultSrc: ["'none'"],
      scriptSrc: ["'self'"],
      styleSrc: ["'self'"],
      // The icon of a page is an empty one.
      imgSrc: ["'self'", 'data:'],
      connectSrc: ["'self'"],
      baseUri: ["'none'"],
      formAction: ["'self'"],
      frameAncestors: ["'none'"],
    },
  },
  strictTransportSecurity: false,
});

/** Their path has their version. */
const FOR_EVER = 'public, max-age=31536000, immutable';

/** Asked for again each time, and answered with 304 while it is the same. */
const ASK_AGAIN = 'no-cache';

/** Each takes some milliseconds, and nobody has to show a key: of one process, so many a second. */
const SEARCHES_A_SECOND = 20;

const types: Record<string, string> = { css: 'text/css', js: 'text/javascript' };

/**
 * /openapi.json, and /docs for people: guides, the reference, and a search over both. A process that nobody asks for them
 * loads nothing of it.
 */
export function addDocsPages(app: Express, describe: () => OpenApiDocument): void {
  let text: string | undefined;
  const openApi = () => {
    text ??= JSON.stringify(describe());
    return text;
  };
  addPage(app, '/openapi.json', (_request, response) => {
    response.type('application/json').send(openApi());
  });

  // Whoever opens the address of the service in a browser is told where to look.
  app.get('/', (_request, response) => refuse(response, 'nothingHere'));

  const open = openOnce(async (): Promise<Site> => {
    const { createSite } = await import('../docs/site.ts');
    return createSite(JSON.parse(openApi()));
  });
  const show = async (response: Response, place: string) => {
    const page = (await open()).page(place);
    if (!page) return refuse(response, 'notFound');
    response.set({ ETag: page.etag, 'Cache-Control': ASK_AGAIN }).type('html').send(page.body);
  };

  app.use('/docs', securityHeaders);
  addPage(app, '/docs', (_request, response) => show(response, ''));
  for (const part of ['guides', 'reference'])
    addPage(app, `/docs/${part}/:name`, ({ params }, response) => show(response, `/${part}/${params.name}`));
  let second = 0;
  let searches = 0;
  addPage(app, '/docs/search', async ({ query }, response) => {
    const now = Math.floor(performance.now() / 1000);
    searches = now === second ? searches + 1 : 1;
    second = now;
    if (searches > SEARCHES_A_SECOND) return refuse(response, 'unavailable', { 'Retry-After': '1' });
    const page = await (await open()).search(typeof query.q === 'string' ? query.q : '');
    response.set('Cache-Control', 'no-store').type('html').send(page);
  });
  addPage(app, '/docs/assets/:version/:name', async ({ params }, response) => {
    const name = String(params.name);
    const file = (await open()).asset(String(params.version), name);
    if (!file) return refuse(response, 'notFound');
    response.set('Cache-Control', FOR_EVER).type(types[name.split('.').at(-1)!]!).send(file);
  });
  addPage(app, '/docs/pictures/:name', async ({ params }, response) => {
    const file = (await open()).picture(String(params.name));
    if (!file) return refuse(response, 'notFound');
    response.sendFile(basename(file), { root: dirname(file), maxAge: '1h' });
  });
}
