import { readFile } from 'node:fs/promises';
import type { Express, Request, Response } from 'express';
import helmet from 'helmet';
import type { Site } from '../docs/site.ts';
import { openOnce } from '../platform/concurrency.ts';
import { addPage, refuse } from './app.ts';
import type { OpenApiDocument } from './openapi.ts';
import { type DocumentOptions, PublicDocument } from './public-documents.ts';
import { PublicLimit } from './public-limit.ts';
import type { Responses } from './responses.ts';

/**
 * Pages may only load content from this server. There is no rule for https, because the proxy is responsible for TLS.
 */
const securityHeaders = helmet({
  contentSecurityPolicy: {
    useDefaults: false,
    directives: {
      defaultSrc: ["'none'"],
      scriptSrc: ["'self'"],
      styleSrc: ["'self'"],
      // The icon of a page is an empty `data:` URL.
      imgSrc: ["'self'", 'data:'],
      connectSrc: ["'self'"],
      baseUri: ["'none'"],
      formAction: ["'self'"],
      frameAncestors: ["'none'"],
    },
  },
  strictTransportSecurity: false,
});

/** Assets have their version in the path. */
const FOR_EVER = 'public, max-age=31536000, immutable';

/** Clients revalidate each time, and get a 304 if the document has not changed. */
const ASK_AGAIN = 'no-cache';

/** Tokens for a search, which takes milliseconds of processor time, as much as ten other pages. */
const SEARCH_COST = 10;

const types: Record<string, string> = {
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  png: 'image/png',
  webp: 'image/webp',
  svg: 'image/svg+xml',
};

interface DocsServices {
  responses: Responses;
  /** The address that a request comes from, if it is known. */
  addressOf(request: Request): string | undefined;
}

/**
 * Adds /openapi.json and /docs: guides, the reference, and a search over both. They are loaded with the first
 * request. Callers have no key, so a token bucket by address limits them, and each document is serialized and
 * compressed once.
 */
export function addDocsPages(
  app: Express,
  describe: () => OpenApiDocument,
  { responses, addressOf }: DocsServices,
): void {
  const limit = new PublicLimit();
  const searches = new PublicLimit();

  /** @returns whether the caller is within its limit; if not, it has been answered with 429 */
  function isWithin(response: Response, retryAfter: number): boolean {
    if (retryAfter > 0) refuse(response, 'rateLimited', { 'Retry-After': String(retryAfter) });
    return retryAfter === 0;
  }

  /**
   * @param nameOf returns the name of the document: several paths may be escaped forms of one name
   * @param make creates the document at its first request; undefined if there is no such document
   */
  function shows(
    nameOf: (request: Request) => string,
    optionsOf: (name: string) => DocumentOptions,
    make: (name: string) => Promise<Buffer | undefined>,
  ): (request: Request, response: Response) => Promise<void> {
    const documents = new Map<string, PublicDocument>();
    return async (request, response) => {
      if (!isWithin(response, limit.take(addressOf(request)))) return;
      const name = nameOf(request);
      let document = documents.get(name);
      if (!document) {
        const body = await make(name);
        if (!body) return refuse(response, 'notFound');
        document = new PublicDocument(body, optionsOf(name));
        documents.set(name, document);
      }
      await document.send(request, response);
    };
  }

  let text: string | undefined;
  const openApi = () => {
    text ??= JSON.stringify(describe());
    return text;
  };
  addPage(
    app,
    '/openapi.json',
    shows(
      () => '/openapi.json',
      () => ({ type: 'application/json; charset=utf-8', cacheControl: ASK_AGAIN }),
      async () => Buffer.from(openApi()),
    ),
  );

  // Points visitors who open the address of the service in a browser to the documentation.
  app.get('/', (_request, response) => refuse(response, 'nothingHere'));

  const open = openOnce(async (): Promise<Site> => {
    const { createSite } = await import('../docs/site.ts');
    return createSite(JSON.parse(openApi()));
  });
  const showsPage = (pathOf: (request: Request) => string) =>
    shows(
      pathOf,
      () => ({ type: 'text/html; charset=utf-8', cacheControl: ASK_AGAIN }),
      async (path) => (await open()).page(path),
    );

  app.use('/docs', securityHeaders);
  addPage(
    app,
    '/docs',
    showsPage(() => ''),
  );
  for (const part of ['guides', 'reference'])
    addPage(
      app,
      `/docs/${part}/:name`,
      showsPage(({ params }) => `/${part}/${params.name}`),
    );
  addPage(app, '/docs/search', async (request, response) => {
    if (!isWithin(response, searches.take(addressOf(request), SEARCH_COST))) return;
    const { q } = request.query;
    const resultsPage = await (await open()).search(typeof q === 'string' ? q : '');
    response.set('Cache-Control', 'no-store').type('html');
    responses.sendPage(response, resultsPage);
  });
  addPage(app, '/docs/calculator', async (request, response) => {
    if (!isWithin(response, limit.take(addressOf(request)))) return;
    const { search } = new URL(request.url, 'http://localhost');
    const page = (await open()).calculator(search);
    response.set('Cache-Control', 'no-store').type('html');
    responses.sendPage(response, page);
  });
  addPage(
    app,
    '/docs/assets/:version/:name',
    shows(
      ({ params }) => `${params.version}/${params.name}`,
      (name) => ({ type: typeOf(name), cacheControl: FOR_EVER }),
      async (name) => {
        const [version, file] = name.split('/') as [string, string];
        return (await open()).asset(version, file);
      },
    ),
  );
  addPage(
    app,
    '/docs/pictures/:name',
    shows(
      ({ params }) => String(params.name),
      (name) => ({
        type: typeOf(name),
        cacheControl: 'public, max-age=3600',
        isCompressed: !name.endsWith('.svg'),
      }),
      async (name) => {
        const file = (await open()).picture(name);
        return file === undefined ? undefined : readFile(file);
      },
    ),
  );
}

function typeOf(name: string): string {
  return types[name.split('.').at(-1)!] ?? 'application/octet-stream';
}
